//! The stages of `cargo xtask test`, and which of them a call wants.

/// All stages after the reference tools, in their order.
pub(super) const STAGES: [&str; 15] = [
    "format",
    "check",
    "generate",
    "clippy",
    "quick",
    "doc",
    "build",
    "dist",
    "crates",
    "test",
    "instructions",
    "models",
    "aarch64",
    "reproduced",
    "verified crates",
];

/// The stages of `--quick`. The usual run has the tests of the stage `quick` in `test`.
const QUICK_STAGES: [&str; 4] = ["format", "check", "clippy", "quick"];

/// The stages of `--full`: about an hour more.
const FULL_STAGES: [&str; 4] = ["dist", "aarch64", "reproduced", "verified crates"];

/// The arguments of the command.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) full: bool,
    /// Whether to run only the checks and tests that take a few minutes.
    pub(super) quick: bool,
    /// Whether to write the times of the run to the documents.
    pub(super) records: bool,
    /// The only stages to run; empty for all.
    stages: Vec<String>,
}

impl Options {
    pub(super) fn parse(arguments: &[String]) -> std::result::Result<Options, String> {
        let mut options = Options::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--full" => options.full = true,
                "--quick" => options.quick = true,
                "--record" => options.records = true,
                "--stage" => match arguments.next() {
                    Some(stage) if STAGES.contains(&stage.as_str()) => {
                        options.stages.push(stage.clone());
                    }
                    _ => return Err(format!("--stage takes one of {}", STAGES.join(", "))),
                },
                other => {
                    return Err(format!(
                        "test takes --quick, --full, --record and --stage NAME, not {other}"
                    ));
                }
            }
        }
        Ok(options)
    }

    pub(super) fn wants(&self, stage: &str) -> bool {
        if !self.stages.is_empty() {
            return self.stages.iter().any(|it| it == stage);
        }
        if self.quick {
            return QUICK_STAGES.contains(&stage);
        }
        stage != "quick" && (self.full || !FULL_STAGES.contains(&stage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_chosen_by_full_or_by_name() {
        let parse = |text: &str| {
            let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Options::parse(&arguments)
        };
        let chosen = |text: &str| {
            let options = parse(text).unwrap();
            STAGES.into_iter().filter(|it| options.wants(it)).count()
        };
        assert_eq!(chosen(""), STAGES.len() - FULL_STAGES.len() - 1);
        assert_eq!(chosen("--full"), STAGES.len() - 1);
        assert_eq!(chosen("--quick"), QUICK_STAGES.len());
        assert_eq!(chosen("--full --stage dist --stage test"), 2);
        assert!(parse("--stage").is_err() && parse("--stage x").is_err() && parse("x").is_err());
    }
}
