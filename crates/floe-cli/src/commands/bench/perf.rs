//! Profiles: one more run of each variant under perf.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use floe_bench::{Measurement, Repetitions, Report, perf, rounds};
use floe_transfer::Cancel;

use super::scenario::ScenarioRun;
use super::variant::VariantSpec;
use crate::display::eprint_line;
use crate::messages;

/// Writes a table of counters and a profile of each variant into `directory`. If perf does not
/// work, adds a note to the report.
pub(crate) fn profile(
    directory: &Path,
    run: &ScenarioRun<'_>,
    (variants, cancel): (&[VariantSpec], &Cancel),
    report: &mut Report,
) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| messages::directory(directory))?;
    let row = file_name(&run.name());
    for variant in variants {
        let words = run.words(variant);
        let base = format!("{row}-{}", file_name(&variant.name));
        let counters = directory.join(format!("{base}.stat.txt"));
        let samples = directory.join(format!("{base}.perf.data"));
        for words in [
            perf::stat(&counters, &words),
            perf::record(&samples, &words),
        ] {
            let mut timed_variant = run.timed_variant(variant, DEADLINE);
            timed_variant.invocation.arguments = words;
            let once = Repetitions {
                warmup: 0,
                iterations: 1,
            };
            let stop = cancel.flag();
            let measurements = rounds(&[timed_variant], once, &stop, &mut |_, _| {});
            if let Some(Measurement::Failed(why)) = measurements.first() {
                eprint_line(format_args!("floe: skipping perf: {why}"));
                let why: Vec<&str> = why.split_whitespace().collect();
                let note = format!("perf was skipped: {}", why.join(" "));
                report.notes.push(note);
                return Ok(());
            }
        }
    }
    let shown = directory.display();
    let note = format!(
        "perf: counters and profiles of one more run each are in {shown}. perf report -i shows a \
         profile."
    );
    if !report.notes.contains(&note) {
        report.notes.push(note);
    }
    Ok(())
}

/// Returns a plain file name: letters and digits, and single dashes for other characters.
fn file_name(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}

/// The deadline of a run, which perf makes slower.
const DEADLINE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_has_letters_digits_and_dashes() {
        assert_eq!(file_name("cache (xz, HTTP) → tmpfs"), "cache-xz-HTTP-tmpfs");
    }
}
