"""Views of results: text, HTML, SVG, JSON."""
