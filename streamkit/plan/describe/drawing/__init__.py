"""The topology as a drawing: a layered layout computed here, written as SVG and as one HTML page."""
