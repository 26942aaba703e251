"""What people look at: pictures as PNG and SVG files, and the page. The page is made without matplotlib."""
