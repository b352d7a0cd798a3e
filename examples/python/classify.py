"""Says which digit each picture shows, by a library that `quench compile digits.onnx` made: classify.py model.so PICTURE...

Needs the package quench, and Pillow for the pictures.
"""

import sys

import numpy as np
import quench
from PIL import Image

if len(sys.argv) < 3:
    sys.exit("usage: classify.py model.so PICTURE...")
with quench.Engine(sys.argv[1]) as engine:
    for path in sys.argv[2:]:
        picture = Image.open(path).convert("L").resize((8, 8))
        pixels = np.asarray(picture, np.float32).reshape(1, 1, 8, 8) / 255
        logits, = engine.infer({"image": pixels})
        print(f"{path}: this is a {logits.argmax()}")
