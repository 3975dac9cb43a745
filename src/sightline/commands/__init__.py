"""What the commands on trained models do. The command line names them; these modules may import torch."""
