"""TensorFlow's operators beside TensorFlow itself."""
