//! The newest builds of a jobset of a Hydra.
//!
//! The API is that of `hydra-api.yaml` in the sources of Hydra. A Hydra cannot run in floe's tests;
//! a server replays replies of the documented form.

mod build;
mod query;

use std::fmt;

use floe_transfer::url::{parse_url, redact_credentials};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub(crate) use query::{query, query_before};

/// A jobset of a Hydra: `hydra+https://HOST[/DIR]/PROJECT/JOBSET[?prefix=P][&system=S]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HydraUri {
    /// The URL of the Hydra, without a slash at the end.
    base: String,
    project: String,
    jobset: String,
    /// The text before names in the names of jobs, such as `nixpkgs.`.
    prefix: String,
    /// The system at the end of the names of jobs, if it is not that of this machine.
    system: Option<String>,
}

impl HydraUri {
    /// Parses the text after `hydra+`.
    ///
    /// Errors: the text says which part is wrong.
    pub(crate) fn parse(text: &str) -> Result<HydraUri, String> {
        let url = parse_url(text).map_err(|_| "it is not an http or https URL".to_owned())?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err("it is not an http or https URL".into());
        }
        if url.fragment().is_some() {
            return Err("it has a fragment".into());
        }
        let address = text.split('?').next().unwrap_or(text).trim_end_matches('/');
        let mut parts = address.rsplitn(3, '/');
        let (jobset, project, base) = (parts.next(), parts.next(), parts.next());
        let is_host = |base: &str| base.ends_with('/') || !base.contains("//");
        let (Some(jobset), Some(project), Some(base)) = (jobset, project, base) else {
            return Err(NO_JOBSET.into());
        };
        if is_host(base) || jobset.is_empty() || project.is_empty() {
            return Err(NO_JOBSET.into());
        }
        let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let mut uri = HydraUri {
            base: base.to_owned(),
            project: decoded(project),
            jobset: decoded(jobset),
            prefix: String::new(),
            system: None,
        };
        for (name, value) in url.query_pairs() {
            match &*name {
                "prefix" => uri.prefix = value.into_owned(),
                "system" => uri.system = Some(value.into_owned()),
                name => {
                    return Err(format!(
                        "there is no parameter {name}; there are prefix and system"
                    ));
                }
            }
        }
        Ok(uri)
    }

    /// Returns the system of the builds, such as `x86_64-linux`.
    pub fn system(&self) -> String {
        self.system.clone().unwrap_or_else(machine_system)
    }

    /// Returns the name of the job that builds a package.
    fn job(&self, name: &str) -> String {
        format!("{}{name}.{}", self.prefix, self.system())
    }

    /// Returns the URL of the newest successful build of a package.
    fn latest_url(&self, name: &str) -> String {
        let [project, jobset] = [&self.project, &self.jobset].map(|part| encoded(part));
        let job = encoded(&self.job(name));
        format!("{}/job/{project}/{jobset}/{job}/latest", self.base)
    }

    /// Returns the URL of the list of the newest builds of a package.
    fn recent_url(&self, name: &str) -> String {
        let [project, jobset] = [&self.project, &self.jobset].map(|part| encoded(part));
        let job = encoded(&self.job(name));
        format!(
            "{}/api/latestbuilds?nr={RECENT_BUILDS}&project={project}&jobset={jobset}&job={job}",
            self.base
        )
    }

    /// Returns the URL of a build.
    fn build_url(&self, id: u64) -> String {
        format!("{}/build/{id}", self.base)
    }
}

impl fmt::Display for HydraUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [project, jobset] = [&self.project, &self.jobset].map(|part| encoded(part));
        let base = redact_credentials(&self.base);
        write!(f, "hydra+{base}/{project}/{jobset}")?;
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.is_empty());
        let parameters = [("prefix", prefix), ("system", self.system.as_ref())];
        let mut separator = '?';
        for (name, value) in parameters {
            if let Some(value) = value {
                write!(f, "{separator}{name}={}", encoded(value))?;
                separator = '&';
            }
        }
        Ok(())
    }
}

/// Returns Nix's name of the system of this machine.
pub fn machine_system() -> String {
    format!("{}-linux", std::env::consts::ARCH)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// The characters that have a meaning in URLs.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

const NO_JOBSET: &str = "it names no jobset; write hydra+https://HOST/PROJECT/JOBSET";

/// How many builds are searched for one that succeeded.
const RECENT_BUILDS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_jobs_follow_the_api() {
        let uri = "https://hydra.nixos.org/nixos/unstable?prefix=nixpkgs.&system=x86_64-linux";
        let uri = HydraUri::parse(uri).unwrap();
        assert_eq!(
            uri.latest_url("gtk+3"),
            "https://hydra.nixos.org/job/nixos/unstable/nixpkgs.gtk%2B3.x86_64-linux/latest"
        );
        assert_eq!(
            uri.recent_url("jq"),
            "https://hydra.nixos.org/api/latestbuilds?nr=20&project=nixos&jobset=unstable\
             &job=nixpkgs.jq.x86_64-linux"
        );
        assert_eq!(uri.build_url(7), "https://hydra.nixos.org/build/7");
        let below = HydraUri::parse("http://localhost:1/hydra/a%20b/c/").unwrap();
        let expected = format!(
            "http://localhost:1/hydra/job/a%20b/c/x.{}/latest",
            machine_system()
        );
        assert_eq!(below.latest_url("x"), expected);
    }
}
