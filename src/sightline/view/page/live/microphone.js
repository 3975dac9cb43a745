// Sound from a microphone as a WAV file of 16 bits, which the server reads without a converter.

/** {stop()}: records until then; ``stop`` gives the file. ``onseconds`` is told how long it is. */
export async function recordSound(onseconds) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const context = new AudioContext();
  await context.resume();
  const parts = [];
  let samples = 0;
  // An AudioWorklet would be a script with an address of its own, which the content security policy forbids.
  const tap = context.createScriptProcessor(4096, 1, 1);
  tap.onaudioprocess = ({ inputBuffer }) => {
    parts.push(inputBuffer.getChannelData(0).slice());
    samples += inputBuffer.length;
    onseconds(samples / context.sampleRate);
  };
  const source = context.createMediaStreamSource(stream);
  source.connect(tap);
  tap.connect(context.destination); // silent: what it puts out is empty
  const stop = () => {
    tap.onaudioprocess = null;
    source.disconnect();
    tap.disconnect();
    for (const track of stream.getTracks()) track.stop();
    context.close();
    return new File([wavOf(parts, samples, context.sampleRate)], "microphone.wav", { type: "audio/wav" });
  };
  return { stop };
}

function wavOf(parts, samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples));
  const write = (at, text) => [...text].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  write(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples, true);
  write(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // whole numbers
  view.setUint16(22, 1, true); // of one channel
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  write(36, "data");
  view.setUint32(40, 2 * samples, true);
  let at = 44;
  for (const part of parts) {
    for (const sample of part) {
      view.setInt16(at, Math.round(32767 * Math.min(Math.max(sample, -1), 1)), true);
      at += 2;
    }
  }
  return view.buffer;
}
