//! Tables of aligned columns.

/// Rows of cells. All columns but the last are as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(heads: [&str; N]) -> Table<N> {
        Table {
            rows: vec![heads.map(str::to_owned)],
        }
    }

    pub(crate) fn add(&mut self, row: [String; N]) {
        self.rows.push(row);
    }

    /// Returns the lines; none if there are only the heads.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.rows.len() == 1 {
            return Vec::new();
        }
        let widths: Vec<usize> = (0..N)
            .map(|column| {
                let widths = self.rows.iter().map(|row| row[column].chars().count());
                widths.max().unwrap_or(0)
            })
            .collect();
        let line = |row: &[String; N]| {
            let cells = row.iter().zip(&widths);
            let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}
