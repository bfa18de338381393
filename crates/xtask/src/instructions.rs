//! `cargo xtask instructions`: counts the instructions of fixed workloads, and compares them with
//! the committed counts.
//!
//! A count is free of the noise that times have, so that it shows changes of a few percent on any
//! machine. The program `floe-workloads` has the profile of the tests, which CI builds anyway. The
//! counts therefore guard against algorithms that do more work. They do not measure a release.
//!
//! The counts depend on the compilers of Rust and C, on the C library, and on the instructions of
//! the CPU that valgrind knows, because libraries choose their code by them. Valgrind hides the
//! newest ones, such as SHA-NI and AVX-512, so that most machines agree.

mod callgrind;
mod comparison;
mod counts;
mod table;

use std::env::consts::ARCH;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::Outcome;
use callgrind::Workloads;
use comparison::Comparison;
use counts::Counts;
use table::table;

/// The committed counts.
const FILE: &str = "bench/instructions.md";

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(why) => return Ok(Outcome::Usage(why)),
    };
    if let Some(missing) = missing_tool() {
        bail!("{missing}");
    }
    if options.records {
        record(root, &options)?;
        return Ok(Outcome::Good);
    }
    match check(root, &options.workloads) {
        Ok(()) => Ok(Outcome::Good),
        Err(failure) => {
            println!("{failure:#}");
            Ok(Outcome::Bad)
        }
    }
}

/// Returns `name: reason` if this machine cannot count instructions.
pub(crate) fn missing_tool() -> Option<String> {
    if ARCH != "x86_64" {
        return Some(format!("valgrind: {FILE} has counts of x86_64, not {ARCH}"));
    }
    let found = xtask::system::find_command("valgrind");
    found.is_none().then(|| "valgrind: missing".to_owned())
}

/// Counts the instructions of some workloads, or of all if `names` is empty. Prints them beside the
/// committed counts.
///
/// Errors: a count differs too much, or has no committed one, and the compiler is the one of the
/// committed counts.
pub(crate) fn check(root: &Path, names: &[String]) -> Result<()> {
    let recorded = read(root)?;
    let workloads = Workloads::build(root)?;
    let counted = workloads.count(names)?;
    println!("{}", table(&recorded, &counted));
    let mut failures = Vec::new();
    for (name, count) in &counted {
        match Comparison::of(recorded.of(name), *count) {
            Comparison::Same => {}
            Comparison::Changed => println!("CHANGED BY MORE THAN 2 %: {name}"),
            Comparison::Failed => failures.push(format!("{name} changed by more than 10 %")),
            Comparison::New => failures.push(format!("{name} has no count in {FILE}")),
        }
    }
    for name in recorded.names().filter(|it| !workloads.has(it)) {
        failures.push(format!(
            "{FILE} has a count of {name}, which is not a workload"
        ));
    }
    if failures.is_empty() {
        return Ok(());
    }
    if recorded.compiler() != workloads.compiler() {
        // A new version of Rust is no change of floe.
        println!(
            "NOT COMPARABLE: {FILE} was recorded with {}, and this is {}: {}",
            recorded.compiler(),
            workloads.compiler(),
            failures.join("; ")
        );
        return Ok(());
    }
    bail!(
        "{}; try callgrind_annotate {} to find the cause, and after a change on purpose \
         cargo xtask instructions --record --because REASON",
        failures.join("; "),
        callgrind::output_file(root, "WORKLOAD").display(),
    );
}

/// Counts, and writes the changed counts with the reason.
fn record(root: &Path, options: &Options) -> Result<()> {
    let mut recorded = if root.join(FILE).exists() {
        read(root)?
    } else {
        Counts::default()
    };
    let workloads = Workloads::build(root)?;
    let counted = workloads.count(&options.workloads)?;
    println!("{}", table(&recorded, &counted));
    let unexplained = recorded.record(&counted, options.reason.as_deref());
    ensure!(
        unexplained.is_empty(),
        "cannot record {}: a change of more than 2 % needs a reason; try --because REASON",
        unexplained.join(", ")
    );
    recorded.retain(|name| workloads.has(name));
    if options.workloads.is_empty() {
        recorded.set_compiler(workloads.compiler());
    }
    let file = root.join(FILE);
    fs::write(&file, recorded.to_string())
        .with_context(|| format!("cannot write {}", file.display()))
}

fn read(root: &Path) -> Result<Counts> {
    let text =
        fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    Counts::parse(&text).with_context(|| format!("cannot parse {FILE}"))
}

/// The arguments of the command.
#[derive(Debug, Default, PartialEq)]
struct Options {
    records: bool,
    /// Why counts changed.
    reason: Option<String>,
    /// The only workloads to run; empty for all.
    workloads: Vec<String>,
}

impl Options {
    fn parse(arguments: &[String]) -> std::result::Result<Options, String> {
        let mut options = Options::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--record" => options.records = true,
                "--because" => match arguments.next() {
                    Some(reason) if counts::is_reason(reason) => {
                        options.reason = Some(reason.clone());
                    }
                    _ => return Err("--because takes a reason on one line, without `|`".into()),
                },
                name if !name.starts_with('-') => options.workloads.push(name.to_owned()),
                other => {
                    return Err(format!(
                        "instructions takes --record, --because and workloads, not {other}"
                    ));
                }
            }
        }
        if options.reason.is_some() && !options.records {
            return Err("--because needs --record".into());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> std::result::Result<Options, String> {
        let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn reason_belongs_to_a_record() {
        let expected = Options {
            records: true,
            reason: Some("a new check".into()),
            workloads: vec!["hash".into()],
        };
        let arguments = ["--record", "--because", "a new check", "hash"];
        assert_eq!(parse(&arguments), Ok(expected));
        assert!(parse(&["--because", "a new check"]).is_err());
        assert!(parse(&["--record", "--because"]).is_err());
        assert!(parse(&["--record", "--because", "a | b"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }

    #[test]
    fn committed_counts_parse_and_print_alike() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let text = fs::read_to_string(root.join(FILE)).unwrap();
        assert_eq!(Counts::parse(&text).unwrap().to_string(), text);
    }
}
