//! The JSON of builds.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A build, as `GET /build/ID` describes it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Build {
    pub(super) id: u64,
    #[serde(deserialize_with = "flag")]
    pub(super) finished: bool,
    /// 0 for success; absent before the end.
    #[serde(default)]
    pub(super) buildstatus: Option<i64>,
    #[serde(default)]
    pub(super) system: Option<String>,
    #[serde(default)]
    pub(super) nixname: Option<String>,
    /// When the build ended, in seconds since 1970.
    #[serde(default)]
    pub(super) stoptime: Option<u64>,
    #[serde(default)]
    pub(super) timestamp: Option<u64>,
    /// The outputs and their paths. A list of builds does not have them.
    #[serde(default)]
    pub(super) buildoutputs: BTreeMap<String, BuildOutput>,
}

/// An output of a build.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct BuildOutput {
    /// The full store path; absent for an output that is not known before its build.
    #[serde(default)]
    pub(super) path: Option<String>,
}

impl Build {
    /// Parses a build.
    ///
    /// Errors: the text says what the reply is instead.
    pub(super) fn parse(contents: &[u8]) -> Result<Build, String> {
        parse(contents)
    }

    /// Parses a list of builds.
    ///
    /// Errors: the text says what the reply is instead.
    pub(super) fn parse_list(contents: &[u8]) -> Result<Vec<Build>, String> {
        parse(contents)
    }

    /// Whether the build has made its outputs.
    pub(super) fn has_succeeded(&self) -> bool {
        self.finished && self.buildstatus == Some(0)
    }

    /// Returns why the build has no outputs, in the words of Hydra (`buildstatus` of the API).
    pub(super) fn state(&self) -> &'static str {
        if !self.finished {
            return "has not finished";
        }
        match self.buildstatus {
            Some(0) => "has succeeded",
            Some(2) => "failed, because a dependency failed",
            Some(3) | Some(9) => "was aborted",
            Some(10) | Some(11) => "exceeded a limit of its size",
            Some(4) => "was cancelled",
            Some(6) => "failed with output",
            Some(7) => "timed out",
            _ => "failed",
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(contents: &'a [u8]) -> Result<T, String> {
    let is_page = contents.trim_ascii_start().first() == Some(&b'<');
    if is_page {
        return Err("the server sent a web page in place of JSON".into());
    }
    serde_json::from_slice(contents).map_err(|error| format!("it is not a build: {error}"))
}

/// Reads a number or a boolean.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Flag {
        Bool(bool),
        Number(i64),
    }
    Ok(match Flag::deserialize(deserializer)? {
        Flag::Bool(value) => value,
        Flag::Number(number) => number != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_the_documented_form_are_read() {
        let text = br#"{"id":7,"finished":1,"buildstatus":0,"system":"x86_64-linux",
            "nixname":"jq-1.7.1","stoptime":1700000000,"project":"nixos","jobset":"unstable",
            "buildoutputs":{"out":{"path":"/nix/store/x"},"dev":{"path":null}}}"#;
        let build = Build::parse(text).unwrap();
        assert!(build.has_succeeded());
        assert_eq!(
            build.buildoutputs["out"].path.as_deref(),
            Some("/nix/store/x")
        );
        assert_eq!(build.buildoutputs["dev"].path, None);
        let running = Build::parse(br#"{"id":8,"finished":0,"buildstatus":null}"#).unwrap();
        assert!(!running.has_succeeded());
        assert_eq!(running.state(), "has not finished");
        let failed = Build::parse_list(br#"[{"id":8,"finished":true,"buildstatus":2}]"#).unwrap();
        assert_eq!(failed[0].state(), "failed, because a dependency failed");
    }

    #[test]
    fn other_replies_are_refused() {
        for (text, reason) in [
            ("<html>", "a web page"),
            ("", "not a build"),
            ("[]", "not a build"),
            ("{\"error\":\"no\"}", "not a build"),
            ("{\"id\":-1,\"finished\":1}", "not a build"),
        ] {
            let error = Build::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
