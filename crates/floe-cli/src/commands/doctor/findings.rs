//! The findings of a diagnosis.

use std::fmt::Display;

use floe_transfer::ErrorKind;
use serde_json::{Value, json};

use crate::display::{eprint_line, is_json};
use crate::exit;
use crate::messages::{counted, escaped};
use crate::stdout::print;

/// A part of the diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Configuration,
    Caches,
    Names,
    Store,
    FileSystem,
    Namespaces,
}

impl Part {
    fn title(self) -> &'static str {
        match self {
            Part::Configuration => "configuration",
            Part::Caches => "caches",
            Part::Names => "names of packages",
            Part::Store => "store",
            Part::FileSystem => "file system",
            Part::Namespaces => "namespaces",
        }
    }

    /// Its name in JSON.
    fn name(self) -> &'static str {
        match self {
            Part::Configuration => "configuration",
            Part::Caches => "caches",
            Part::Names => "names",
            Part::Store => "store",
            Part::FileSystem => "fileSystem",
            Part::Namespaces => "namespaces",
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// All is well.
    Fine,
    /// floe works, but less well than it could, or could not find out.
    Warning,
    /// A command fails.
    Problem,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Fine => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        }
    }
}

/// One finding.
#[derive(Debug)]
struct Finding {
    part: Part,
    severity: Severity,
    message: String,
    /// The remedy; empty if nothing is to be done.
    remedy: String,
}

/// All findings, in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    pub(super) fn fine(&mut self, part: Part, message: impl Display) {
        self.add(part, Severity::Fine, message, "");
    }

    pub(super) fn warn(&mut self, part: Part, message: impl Display, remedy: impl Display) {
        self.add(part, Severity::Warning, message, remedy);
    }

    pub(super) fn problem(&mut self, part: Part, message: impl Display, remedy: impl Display) {
        self.add(part, Severity::Problem, message, remedy);
    }

    fn add(&mut self, part: Part, severity: Severity, message: impl Display, remedy: impl Display) {
        self.list.push(Finding {
            part,
            severity,
            message: escaped(message),
            remedy: escaped(remedy),
        });
    }

    fn count(&self, severity: Severity) -> usize {
        let found = self.list.iter();
        found.filter(|it| it.severity == severity).count()
    }

    /// Prints the findings. Fails if there is a problem.
    pub(super) fn report(&self, as_json: bool) -> anyhow::Result<()> {
        let problems = self.count(Severity::Problem);
        let warnings = self.count(Severity::Warning);
        if as_json {
            print(json!({
                "findings": self.list.iter().map(to_json).collect::<Vec<_>>(),
                "problems": problems,
                "warnings": warnings,
            }))?;
        } else {
            self.print_lines()?;
        }
        let sum = format!(
            "found {} and {}",
            counted(problems, "problem"),
            counted(warnings, "warning")
        );
        if problems == 0 || !is_json() {
            eprint_line(&sum);
        }
        match problems {
            0 => Ok(()),
            _ => Err(exit::reported_failures(&sum, problems, ErrorKind::Failed)),
        }
    }

    fn print_lines(&self) -> anyhow::Result<()> {
        let mut last = None;
        for finding in &self.list {
            if last != Some(finding.part) {
                print(finding.part.title())?;
                last = Some(finding.part);
            }
            let severity = finding.severity.name();
            let separator = if finding.remedy.is_empty() { "" } else { "; " };
            print(format_args!(
                "  {severity:7}  {}{separator}{}",
                finding.message, finding.remedy
            ))?;
        }
        Ok(())
    }
}

fn to_json(finding: &Finding) -> Value {
    let remedy = Some(&finding.remedy).filter(|remedy| !remedy.is_empty());
    json!({
        "part": finding.part.name(),
        "severity": finding.severity.name(),
        "message": finding.message,
        "remedy": remedy,
    })
}
