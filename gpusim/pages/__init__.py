"""Pages: self-contained HTML files of results, with interactive charts, for people without gpusim."""
