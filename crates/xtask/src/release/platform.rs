//! The machines that releases are for.

use anyhow::{Context as _, Result};

/// A target of the compiler, and its names elsewhere.
#[derive(Debug)]
pub(crate) struct Target {
    /// As rustc names it.
    pub(crate) triple: &'static str,
    /// As uname names the processor, and rpm.
    pub(crate) processor: &'static str,
    /// As Debian names the architecture, and the Open Container Initiative.
    pub(crate) debian: &'static str,
    /// The prefix of the compilers and libraries in Debian.
    pub(crate) gnu: &'static str,
}

/// All targets of a release.
pub(crate) const TARGETS: &[Target] = &[
    Target {
        triple: "x86_64-unknown-linux-gnu",
        processor: "x86_64",
        debian: "amd64",
        gnu: "x86_64-linux-gnu",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        processor: "aarch64",
        debian: "arm64",
        gnu: "aarch64-linux-gnu",
    },
];

impl Target {
    /// Finds a target by the name of rustc.
    pub(crate) fn find(triple: &str) -> Result<&'static Target> {
        let target = TARGETS.iter().find(|target| target.triple == triple);
        target.with_context(|| {
            let known: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
            let known = known.join(", ");
            format!("cannot make a release for {triple}: there are releases for {known}")
        })
    }

    /// As Nix names the platform.
    pub(crate) fn platform(&self) -> String {
        format!("{}-linux", self.processor)
    }
}
