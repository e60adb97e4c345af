"""What people's marks on the pages of report.inspect say of the filters."""
