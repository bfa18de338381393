//! Tables in Markdown.

/// A table that is built row by row.
#[derive(Clone, Debug)]
pub struct Table {
    columns: usize,
    text: String,
}

impl Table {
    /// A table with these column headings and no rows.
    pub fn new(headings: &[&str]) -> Table {
        let mut table = Table {
            columns: headings.len(),
            text: String::new(),
        };
        table.row(headings);
        table.text += &format!("|{}\n", "---|".repeat(headings.len()));
        table
    }

    /// Appends a row. Missing cells at its end stay empty.
    pub fn row(&mut self, cells: &[impl AsRef<str>]) {
        let mut columns: Vec<String> = cells.iter().map(|cell| escape(cell.as_ref())).collect();
        columns.resize(self.columns, String::new());
        self.text += &format!("| {} |\n", columns.join(" | "));
    }

    /// The table in Markdown, with a newline at its end.
    pub fn into_markdown(self) -> String {
        self.text
    }
}

/// Text on one line, with the column separator escaped.
fn escape(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_cell_cannot_break_the_table() {
        let mut table = Table::new(&["a", "b", "c"]);
        table.row(&["x | y\nz", "2"]);
        assert_eq!(
            table.into_markdown(),
            "| a | b | c |\n|---|---|---|\n| x \\| y z | 2 |  |\n"
        );
    }
}
