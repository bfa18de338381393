//! The lines of `nix path-info`: a path with columns behind it.

use floe_format::{PathInfo, StorePath, sum_of_sizes};

use super::queried::Queried;
use crate::args::ColumnArgs;
use crate::nix_sizes::render_size;
use crate::stdout::print;

/// Prints a line for each path.
pub(crate) fn print_columns(queried: &Queried<'_>, paths: &[StorePath]) -> anyhow::Result<()> {
    let columns = queried.columns;
    let dir = queried.source.store_dir();
    let width = paths.iter().map(|path| dir.full_path(path).len()).max();
    let width = if columns.is_empty() {
        0
    } else {
        width.unwrap_or(0)
    };
    for path in paths {
        let mut line = format!("{:width$}", dir.full_path(path));
        if columns.size {
            line += &size(columns, queried.narinfo(path).info.nar_size);
        }
        if columns.closure_size {
            let closure = queried.closure(path);
            line += &size(
                columns,
                sum_of_sizes(closure.iter().map(|it| it.info.nar_size)),
            );
        }
        if columns.sigs {
            line += &signatures(&queried.info(path)?);
        }
        print(line)?;
    }
    Ok(())
}

/// Returns the column of a size.
fn size(columns: &ColumnArgs, bytes: u64) -> String {
    if columns.human_readable {
        format!("\t{:>10}", render_size(bytes))
    } else {
        format!("\t{bytes:>11}")
    }
}

/// Returns the column of what makes a path trustworthy.
fn signatures(info: &PathInfo) -> String {
    let ultimate = info.ultimate.then(|| "ultimate".to_owned());
    let ca = info.ca.as_ref().map(|ca| format!("ca:{ca}"));
    let signatures = info.signatures.iter().map(ToString::to_string);
    let words: Vec<String> = ultimate.into_iter().chain(ca).chain(signatures).collect();
    format!("\t{}", words.join(" "))
}
