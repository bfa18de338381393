//! The rows: which work, who does it, and what floe aims at.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};
use floe_bench::Variant;

use super::delay::Proxy;
use super::fixture::{Fixture, Nginx};
use super::quota::Quota;
use super::work::{self, Destination, Sizes};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Measure {
    Wall,
    Cpu,
}

/// floe over its rival, at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Aim {
    pub(super) ratio: f64,
    pub(super) rival: &'static str,
    pub(super) measure: Measure,
}

/// A row that may be measured.
pub(super) struct Plan {
    /// The benchmark that it belongs to: install, copy, push or verify.
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) aim: Aim,
    pub(super) set: fn(&Fixture) -> Result<Set<'_>>,
}

/// A row that is ready to be measured.
pub(super) struct Set<'a> {
    pub(super) variants: Vec<Variant<'a>>,
    /// Those whose CPU seconds together are the least that the work can take.
    pub(super) baseline: Vec<&'static str>,
    /// What the results weigh, where that differs.
    pub(super) sizes: Sizes,
    /// What must live as long as the row.
    pub(super) kept: Vec<Kept>,
}

impl<'a> Set<'a> {
    /// A row without a baseline, in which nothing is weighed or kept.
    fn of(variants: Vec<Variant<'a>>) -> Set<'a> {
        Set {
            variants,
            baseline: Vec::new(),
            sizes: Sizes::default(),
            kept: Vec::new(),
        }
    }
}

/// Servers and their like.
#[expect(dead_code, reason = "they are kept for what their end does")]
pub(super) enum Kept {
    Nginx(Nginx),
    Proxy(Proxy),
    Quota(Rc<Quota>),
}

pub(super) const NIX: &str = "nix";
pub(super) const FLOE: &str = "floe";
pub(super) const OLDER: &str = "older nix";
const TAR: &str = "tar";

pub(super) fn all() -> Vec<Plan> {
    let plan = |group, name, ratio, set| Plan {
        group,
        name,
        aim: Aim {
            ratio,
            rival: NIX,
            measure: Measure::Wall,
        },
        set,
    };
    let mut plans = vec![
        plan("install", "firefox, HTTP zstd → tmpfs", 0.55, |w| {
            http(w, FIREFOX, "zstd", false)
        }),
        plan("install", "firefox, HTTP none → tmpfs", 0.55, |w| {
            http(w, FIREFOX, "none", false)
        }),
        plan("install", "firefox, HTTP xz → tmpfs", 0.55, |w| {
            http(w, FIREFOX, "xz", false)
        }),
        plan("install", "kdenlive, HTTP zstd → tmpfs", 0.65, |w| {
            http(w, KDENLIVE, "zstd", false)
        }),
        plan(
            "install",
            "firefox, files zstd → tmpfs, beside tar",
            0.82,
            beside_tar,
        ),
        plan("install", "10 chains of 30, 50 ms round trip", 0.30, chains),
        plan("install", "kdenlive, everything there", 0.50, nothing_to_do),
        plan(
            "install",
            "curl, HTTP xz, a quarter of a core",
            0.85,
            quarter,
        ),
        plan("install", "firefox, HTTP zstd → ext4", 0.75, |w| {
            http(w, FIREFOX, "zstd", true)
        }),
        plan("install", "firefox, HTTP none → ext4", 0.75, |w| {
            http(w, FIREFOX, "none", true)
        }),
        plan("install", "firefox, HTTP xz → ext4", 0.75, |w| {
            http(w, FIREFOX, "xz", true)
        }),
        plan("copy", "firefox, local → tmpfs", 0.55, |w| {
            local(w, false)
        }),
        plan("copy", "firefox, local → ext4", 0.75, |w| local(w, true)),
        plan("push", "firefox, local → files zstd", 0.65, push),
        plan("verify", "firefox, contents", 0.60, verify),
    ];
    for plan in &mut plans {
        match plan.name {
            name if name.contains("tar") => plan.aim.rival = TAR,
            name if name.contains("quarter") => plan.aim.measure = Measure::Cpu,
            _ => {}
        }
    }
    plans
}

const FIREFOX: &[&str] = &["firefox", "firefox-esr"];
const KDENLIVE: &[&str] = &["kdenlive"];

/// Where a row writes: in memory, or on a disk with a journal.
fn destination(fixture: &Fixture, on_disk: bool) -> Result<Destination> {
    let (parent, settled) = match on_disk {
        true => (fixture.disk()?, true),
        false => (fixture.memory.path(), false),
    };
    Ok(Destination {
        root: parent.join("root"),
        settled: settled.then(|| parent.to_owned()),
    })
}

fn http<'a>(
    fixture: &'a Fixture,
    corpus: &[&str],
    compression: &str,
    on_disk: bool,
) -> Result<Set<'a>> {
    let corpus = fixture.corpus(corpus)?;
    ensure!(
        corpus.cache(compression).is_dir(),
        "the corpus has no {compression} cache"
    );
    let server = Nginx::start(&corpus.directory)?;
    let from = format!("http://127.0.0.1:{}/cache-{compression}", server.port);
    let to = destination(fixture, on_disk)?;
    let mut variants = work::movers(fixture, &corpus, &from, &to, true)?;
    let baseline = work::baselines(fixture, &corpus, compression, &to, &mut variants)?;
    Ok(Set {
        baseline,
        kept: vec![Kept::Nginx(server)],
        ..Set::of(variants)
    })
}

fn local(fixture: &Fixture, on_disk: bool) -> Result<Set<'_>> {
    let corpus = fixture.corpus(FIREFOX)?;
    let to = destination(fixture, on_disk)?;
    let from = corpus.store().display().to_string();
    let mut variants = work::movers(fixture, &corpus, &from, &to, false)?;
    variants.push(work::variant(
        fixture,
        "cp -r",
        words(&["cp", "-r", &from, &to.root.display().to_string()]),
        Some(&to),
    ));
    let baseline = work::baselines(fixture, &corpus, "local", &to, &mut variants)?;
    Ok(Set {
        baseline,
        ..Set::of(variants)
    })
}

fn beside_tar(fixture: &Fixture) -> Result<Set<'_>> {
    let corpus = fixture.corpus(FIREFOX)?;
    let to = destination(fixture, false)?;
    let from = format!("file://{}", corpus.cache("zstd").display());
    let mut variants = work::movers(fixture, &corpus, &from, &to, true)?;
    variants.push(work::untar(fixture, &corpus, TAR, true, &to)?);
    let baseline = work::baselines(fixture, &corpus, "zstd", &to, &mut variants)?;
    Ok(Set {
        baseline,
        ..Set::of(variants)
    })
}

fn chains(fixture: &Fixture) -> Result<Set<'_>> {
    let corpus = fixture.corpus(&["chains"])?;
    ensure!(
        corpus.paths.len() == super::chains::PATHS,
        "the chains are not whole"
    );
    let server = Nginx::start(&corpus.directory)?;
    let proxy = Proxy::start(server.port, ROUND_TRIP)?;
    let from = format!("http://127.0.0.1:{}/cache-zstd", proxy.port);
    let to = destination(fixture, false)?;
    let variants = work::movers(fixture, &corpus, &from, &to, true)?;
    Ok(Set {
        kept: vec![Kept::Nginx(server), Kept::Proxy(proxy)],
        ..Set::of(variants)
    })
}

/// From one coast of an ocean to the other.
const ROUND_TRIP: Duration = Duration::from_millis(50);

fn nothing_to_do(fixture: &Fixture) -> Result<Set<'_>> {
    let corpus = fixture.corpus(KDENLIVE)?;
    let server = Nginx::start(&corpus.directory)?;
    let from = format!("http://127.0.0.1:{}/cache-zstd", server.port);
    let to = Destination {
        root: corpus.store(),
        settled: None,
    };
    let mut variants = work::movers(fixture, &corpus, &from, &to, true)?;
    for variant in &mut variants {
        // The store is the corpus itself: nothing of it is removed.
        variant.scratch_paths.retain(|path| *path != to.root);
    }
    Ok(Set {
        kept: vec![Kept::Nginx(server)],
        ..Set::of(variants)
    })
}

fn quarter(fixture: &Fixture) -> Result<Set<'_>> {
    let corpus = fixture.corpus(&["curl"])?;
    let server = Nginx::start(&corpus.directory)?;
    let from = format!("http://127.0.0.1:{}/cache-xz", server.port);
    let to = destination(fixture, false)?;
    let quota = Rc::new(Quota::new(0.25)?);
    let mut variants = work::movers(fixture, &corpus, &from, &to, true)?;
    let baseline = work::baselines(fixture, &corpus, "xz", &to, &mut variants)?;
    for variant in &mut variants {
        let inner = std::mem::take(&mut variant.invocation.arguments);
        variant.invocation.arguments = quota.wrap(inner);
    }
    Ok(Set {
        baseline,
        kept: vec![Kept::Nginx(server), Kept::Quota(quota)],
        ..Set::of(variants)
    })
}

fn push(fixture: &Fixture) -> Result<Set<'_>> {
    let corpus = fixture.corpus(FIREFOX)?;
    let cache = fixture.memory.path().join("cache");
    let url = format!("file://{}?compression=zstd", cache.display());
    let sizes = Sizes::default();
    let from = corpus.store().display().to_string();
    let mut variants = Vec::new();
    for (name, program) in work::programs(fixture) {
        let copy = [program.as_str(), "copy", "--no-check-sigs", "--from", &from];
        let mut all = words(&copy);
        all.extend(words(&["--to", &url, &corpus.root]));
        let mut one = work::variant(fixture, name, all, None);
        one.scratch_paths.push(cache.clone());
        one.check = work::check_cache(cache.clone(), corpus.paths.len(), name, sizes.clone());
        variants.push(one);
    }
    Ok(Set {
        sizes,
        ..Set::of(variants)
    })
}

fn verify(fixture: &Fixture) -> Result<Set<'_>> {
    let corpus = fixture.corpus(FIREFOX)?;
    let store = corpus.store().display().to_string();
    let mut variants = Vec::new();
    for (name, program) in work::programs(fixture) {
        let program = match name {
            FLOE => words(&[&program, "verify", "--store", &store]),
            _ => {
                let tool = format!("{program}-store");
                words(&[&tool, "--store", &store, "--verify", "--check-contents"])
            }
        };
        variants.push(work::variant(fixture, name, program, None));
    }
    let mut hash = words(&[
        &fixture.baseline.display().to_string(),
        "baseline",
        "sha256",
    ]);
    hash.extend(corpus.nars("none"));
    variants.push(work::variant(fixture, "hash", hash, None));
    Ok(Set {
        baseline: vec!["hash"],
        ..Set::of(variants)
    })
}

pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_an_aim_and_a_name_of_its_own() {
        let plans = all();
        let names: std::collections::BTreeSet<&str> = plans.iter().map(|plan| plan.name).collect();
        assert_eq!(names.len(), plans.len());
        for group in ["install", "copy", "push", "verify"] {
            assert!(plans.iter().any(|plan| plan.group == group));
        }
        assert!(plans.iter().all(|plan| plan.aim.ratio < 1.0));
        assert_eq!(plans.iter().filter(|plan| plan.aim.rival == TAR).count(), 1);
        assert_eq!(
            plans
                .iter()
                .filter(|plan| plan.aim.measure == Measure::Cpu)
                .count(),
            1
        );
    }
}
