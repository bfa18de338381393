//! Keeps a result: files in bench/results, and the table in README.md.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::figures::Row;
use super::svg;

/// Writes the files of `bench serve`, and the table where README.md has its markers.
pub(super) fn record(root: &Path, rows: &[Row], text: &str, json: &str) -> Result<()> {
    let results = root.join("bench/results");
    write(&results.join("serve.md"), text)?;
    write(&results.join("serve.json"), json)?;
    let svg = svg::svg("floe serve beside nginx", rows);
    write(&results.join("serve.svg"), &svg)?;
    self::table(root, "serve", &super::table::short(rows))
}

/// Puts a table where README.md has the markers of `name`.
pub(super) fn table(root: &Path, name: &str, table: &str) -> Result<()> {
    let readme = root.join("README.md");
    let before =
        fs::read_to_string(&readme).with_context(|| format!("reading {}", readme.display()))?;
    match between(&before, name, table) {
        Some(after) => write(&readme, &after),
        None => {
            eprintln!("README.md has no <!-- bench:{name} --> … <!-- /bench:{name} -->");
            Ok(())
        }
    }
}

pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// One object, with a line for each row: a hundred samples in full width would be a file too
/// large for a repository, and all in one line no difference to look at.
pub(super) fn lines(facts: &Value, rows: &[Value]) -> String {
    let rows: Vec<String> = rows.iter().map(Value::to_string).collect();
    format!(
        "{{\"facts\":{facts},\n\"rows\":[\n{}\n]}}\n",
        rows.join(",\n")
    )
}

/// Puts `table` between the markers of `name`; `None` without both in their order.
fn between(document: &str, name: &str, table: &str) -> Option<String> {
    let (open, close) = (
        format!("<!-- bench:{name} -->"),
        format!("<!-- /bench:{name} -->"),
    );
    let (before, rest) = document.split_once(&open)?;
    let (_, after) = rest.split_once(&close)?;
    Some(format!("{before}{open}\n{table}{close}{after}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_one_object_with_a_line_for_each_row() {
        let rows = [json!({"row": "a"}), json!({"row": "b"})];
        let text = lines(&json!({"cores": 2}), &rows);
        assert_eq!(text.lines().count(), 5);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["rows"][1]["row"], "b");
        assert_eq!(read["facts"]["cores"], 2);
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let document = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb\n";
        let after = between(document, "x", "| new |\n").unwrap();
        assert_eq!(
            after,
            "a\n<!-- bench:x -->\n| new |\n<!-- /bench:x -->\nb\n"
        );
        assert_eq!(between(&after, "x", "| new |\n").unwrap(), after);
    }

    #[test]
    fn a_document_without_both_markers_is_left_alone() {
        for document in ["", "<!-- bench:x -->", "<!-- /bench:x --><!-- bench:x -->"] {
            assert_eq!(between(document, "x", "t"), None, "{document}");
        }
    }
}
