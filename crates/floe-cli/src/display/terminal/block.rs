//! The lines at the end of the screen, as control sequences (ECMA-48).

/// The lines that are on the screen. The cursor is at the end of the last one.
#[derive(Debug, Default)]
pub(in crate::display) struct Block {
    lines: Vec<String>,
}

impl Block {
    /// Returns the text that replaces the lines.
    pub(in crate::display) fn draw(&mut self, lines: Vec<String>, columns: usize) -> String {
        if self.lines == lines {
            return String::new();
        }
        let begin = self.to_begin(columns);
        self.lines = lines;
        format!("{begin}{}", self.text())
    }

    /// Returns the text that prints a line above the others.
    pub(in crate::display) fn print_above(&mut self, line: &str, columns: usize) -> String {
        format!("{}{line}\r\n{}", self.to_begin(columns), self.text())
    }

    /// Returns the text that removes the lines.
    pub(in crate::display) fn clear(&mut self, columns: usize) -> String {
        let begin = self.to_begin(columns);
        self.lines.clear();
        begin
    }

    /// Moves the cursor to the beginning of the first line, and erases the rest of the screen.
    /// After a resize, a line may take several rows.
    fn to_begin(&self, columns: usize) -> String {
        if self.lines.is_empty() {
            return String::new();
        }
        let rows = |line: &String| line.chars().count().max(1).div_ceil(columns.max(1));
        let rows: usize = self.lines.iter().map(rows).sum();
        match rows - 1 {
            0 => "\r\x1b[J".into(),
            above => format!("\r\x1b[{above}A\x1b[J"),
        }
    }

    fn text(&self) -> String {
        self.lines.join("\r\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn block_replaces_its_own_rows_only() {
        let mut block = Block::default();
        assert_eq!(block.print_above("before", 80), "before\r\n");
        assert_eq!(block.draw(lines(&["a", "b"]), 80), "a\r\nb");
        assert_eq!(block.draw(lines(&["a", "b"]), 80), "");
        assert_eq!(block.draw(lines(&["c"]), 80), "\r\x1b[1A\x1b[Jc");
        assert_eq!(block.print_above("line", 80), "\r\x1b[Jline\r\nc");
        assert_eq!(block.clear(80), "\r\x1b[J");
        assert_eq!(block.clear(80), "");
    }

    #[test]
    fn narrow_screen_wraps_the_old_lines() {
        let mut block = Block::default();
        block.draw(lines(&["0123456789", "01234"]), 80);
        // Three rows and one row.
        assert_eq!(block.clear(4), "\r\x1b[4A\x1b[J");
    }
}
