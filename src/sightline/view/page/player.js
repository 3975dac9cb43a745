// Plays a recording, all of it or a stretch: its sound, or the clock of a clip. Web Audio starts and ends at a sample,
// and gets the samples from this page, so that nothing may be loaded from anywhere.

let context = null; // one for the page, made at the first click: browsers allow no sound before
let playing = null; // one recording is heard at a time

export class Player {
  /** ``onmove`` is called with the time whenever it changes, and whether it plays. */
  constructor(recording, end, onmove) {
    Object.assign(this, { recording, end, onmove, at: 0, turn: 0, source: null, buffer: null, running: false });
  }

  /** Seconds of a clock that runs with the sound. */
  clock() {
    return this.buffer ? context.currentTime : performance.now() / 1000;
  }

  now() {
    return this.running ? Math.min(this.from + Math.max(this.clock() - this.started, 0), this.until) : this.at;
  }

  async play(from = null, until = this.end) {
    const start = from ?? (this.at >= this.end - 0.005 ? 0 : this.at);
    playing?.pause();
    this.turn += 1;
    const mine = this.turn;
    if (this.recording.wav) {
      context ??= new AudioContext();
      this.buffer ??= await context.decodeAudioData(this.recording.wav.slice().buffer);
      await context.resume();
    }
    if (mine !== this.turn) return;
    playing?.pause();
    playing = this;
    Object.assign(this, { from: start, until, running: true, started: this.clock() });
    if (this.buffer) {
      this.source = new AudioBufferSourceNode(context, { buffer: this.buffer });
      this.source.connect(context.destination);
      this.source.start(0, start, Math.max(until - start, 0));
    }
    this.tick(mine);
  }

  tick(mine) {
    if (mine !== this.turn || !this.running) return;
    if (this.now() >= this.until) return this.pause();
    this.onmove(this.now(), true);
    requestAnimationFrame(() => this.tick(mine));
    return undefined;
  }

  /** Stop, and stay at a time. */
  pause(at = this.now()) {
    this.turn += 1;
    this.at = at;
    this.running = false;
    this.source?.stop();
    this.source = null;
    if (playing === this) playing = null;
    this.onmove(at, false);
  }
}
