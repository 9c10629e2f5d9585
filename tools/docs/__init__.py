"""Pages that are generated: tables and command output between markers."""
