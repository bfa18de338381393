//! The rows: the work, the variants, and the aims of floe.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::{Result, ensure};
use floe_bench::Variant;

use super::cpu_quota::CpuQuota;
use super::fixture::{Fixture, Kind, NIX};
use super::link::Traffic;
use super::variants::{self, Destination, Sizes, Source, strings};
use crate::aims::Aim;
use crate::corpus::Corpus;
use crate::server::{FileCache, Server};

/// The subcommand that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Install,
    Copy,
    Push,
    Verify,
    Collect,
    Network,
    Upload,
    Remote,
}

/// A row before it is measured.
pub(super) struct RowPlan {
    pub(super) group: Group,
    pub(super) name: String,
    pub(super) aim: Aim,
    pub(super) prepare: Prepare,
}

/// Starts the servers of a row.
type Prepare = Box<dyn for<'a> Fn(&'a Fixture) -> Result<PreparedRow<'a>>>;

/// Starts the servers of a row that has no further settings.
type PrepareFn = fn(&Fixture) -> Result<PreparedRow<'_>>;

/// A row that is ready to be measured.
pub(super) struct PreparedRow<'a> {
    pub(super) variants: Vec<Variant<'a>>,
    /// The variants whose CPU times add up to the baseline.
    pub(super) baseline: Vec<&'static str>,
    /// Bytes of the results, where they differ.
    pub(super) sizes: Sizes,
    /// The traffic of the last run of each variant over a network.
    pub(super) traffic: TrafficByVariant,
    /// Servers and quotas, which must live as long as the row. They are dropped in this order.
    pub(super) guards: Vec<Box<dyn Any>>,
}

impl<'a> PreparedRow<'a> {
    /// A row without baseline, sizes and guards.
    pub(super) fn new(variants: Vec<Variant<'a>>) -> PreparedRow<'a> {
        PreparedRow {
            variants,
            baseline: Vec::new(),
            sizes: Sizes::default(),
            traffic: TrafficByVariant::default(),
            guards: Vec::new(),
        }
    }
}

const TAR: &str = "tar";

/// The traffic of the last run of each variant.
pub(super) type TrafficByVariant = Rc<RefCell<BTreeMap<String, Traffic>>>;

/// All rows in the order of the table.
pub(super) fn all() -> Vec<RowPlan> {
    use Group::{Copy, Install, Push, Verify};
    let row = |group, name: &str, most: f64, prepare: PrepareFn| RowPlan {
        group,
        name: name.into(),
        aim: Aim::time(NIX, most),
        prepare: Box::new(prepare),
    };
    vec![
        row(Install, "firefox, HTTP zstd → tmpfs", 0.55, |fixture| {
            http(fixture, FIREFOX, "zstd", tmpfs(fixture))
        }),
        row(Install, "firefox, HTTP none → tmpfs", 0.55, |fixture| {
            http(fixture, FIREFOX, "none", tmpfs(fixture))
        }),
        row(Install, "firefox, HTTP xz → tmpfs", 0.55, |fixture| {
            http(fixture, FIREFOX, "xz", tmpfs(fixture))
        }),
        row(Install, "kdenlive, HTTP zstd → tmpfs", 0.65, |fixture| {
            http(fixture, KDENLIVE, "zstd", tmpfs(fixture))
        }),
        RowPlan {
            aim: Aim::time(TAR, 0.82),
            ..row(
                Install,
                "firefox, files zstd → tmpfs, beside tar",
                0.82,
                beside_tar,
            )
        },
        row(Install, "kdenlive, all paths present", 0.50, nothing_to_do),
        RowPlan {
            aim: Aim::none(NIX).cpu(0.85),
            ..row(
                Install,
                "curl, HTTP xz, a quarter of a core",
                0.85,
                quarter_of_a_core,
            )
        },
        row(Install, "firefox, HTTP zstd → ext4", 0.75, |fixture| {
            http(fixture, FIREFOX, "zstd", ext4(fixture)?)
        }),
        row(Install, "firefox, HTTP none → ext4", 0.75, |fixture| {
            http(fixture, FIREFOX, "none", ext4(fixture)?)
        }),
        row(Install, "firefox, HTTP xz → ext4", 0.75, |fixture| {
            http(fixture, FIREFOX, "xz", ext4(fixture)?)
        }),
        row(Copy, "firefox, local → tmpfs", 0.55, |fixture| {
            local(fixture, tmpfs(fixture))
        }),
        row(Copy, "firefox, local → ext4", 0.75, |fixture| {
            local(fixture, ext4(fixture)?)
        }),
        row(Push, "firefox, local → files zstd", 0.65, push),
        row(Verify, "firefox, contents", 0.60, verify),
    ]
}

const FIREFOX: &[&str] = &["firefox", "firefox-esr"];
const KDENLIVE: &[&str] = &["kdenlive"];

pub(super) fn tmpfs(fixture: &Fixture) -> Destination {
    Destination {
        root: fixture.memory.path().join("root"),
        synced: None,
    }
}

pub(super) fn ext4(fixture: &Fixture) -> Result<Destination> {
    let disk = fixture.disk()?;
    Ok(Destination {
        root: disk.join("root"),
        synced: Some(disk.to_owned()),
    })
}

/// nginx over a cache of a corpus, with one worker.
fn nginx(fixture: &Fixture, corpus: &Corpus, compression: &str) -> Result<Server> {
    ensure!(
        corpus.cache(compression).is_dir(),
        "the corpus has no {compression} cache"
    );
    let cache = FileCache {
        root: &corpus.directory,
        prefix: &format!("/cache-{compression}"),
        certificate: None,
    };
    Server::nginx(&cache, 1, &fixture.scratch.path().join("nginx"))
}

fn http<'a>(
    fixture: &'a Fixture,
    corpus: &[&str],
    compression: &str,
    to: Destination,
) -> Result<PreparedRow<'a>> {
    let corpus = fixture.corpus(corpus)?;
    let server = nginx(fixture, &corpus, compression)?;
    let url = server.endpoint.origin.url();
    let mut variants = variants::copies_from_cache(fixture, &corpus, &url, &to)?;
    let url = Some(url.as_str());
    let source = Source::Cache { compression, url };
    let baseline = variants::add_baseline(fixture, &corpus, source, (&to, &mut variants))?;
    Ok(PreparedRow {
        baseline,
        guards: vec![Box::new(server)],
        ..PreparedRow::new(variants)
    })
}

fn local(fixture: &Fixture, to: Destination) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(FIREFOX)?;
    let mut variants = variants::copies_from_store(fixture, &corpus, &to)?;
    if fixture.bench.is_some() {
        let (from, root) = (corpus.store(), to.root.display().to_string());
        let cp = strings(&["cp", "-r", &from.display().to_string(), &root]);
        variants.push(variants::variant(fixture, "cp -r", cp, Some(&to)));
    }
    let baseline = variants::add_baseline(fixture, &corpus, Source::Store, (&to, &mut variants))?;
    Ok(PreparedRow {
        baseline,
        ..PreparedRow::new(variants)
    })
}

fn beside_tar(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(FIREFOX)?;
    let to = tmpfs(fixture);
    let url = format!("file://{}", corpus.cache("zstd").display());
    let mut variants = variants::copies_from_cache(fixture, &corpus, &url, &to)?;
    if let Some(bench) = &fixture.bench {
        variants.push(variants::untar(fixture, &corpus, (TAR, Some(bench)), &to)?);
    }
    let source = Source::Cache {
        compression: "zstd",
        url: None,
    };
    let baseline = variants::add_baseline(fixture, &corpus, source, (&to, &mut variants))?;
    Ok(PreparedRow {
        baseline,
        ..PreparedRow::new(variants)
    })
}

fn nothing_to_do(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(KDENLIVE)?;
    let server = nginx(fixture, &corpus, "zstd")?;
    let to = Destination {
        root: corpus.store(),
        synced: None,
    };
    let url = server.endpoint.origin.url();
    let mut variants = variants::copies_from_cache(fixture, &corpus, &url, &to)?;
    for variant in &mut variants {
        // The target is the store of the corpus itself, so it must not be removed.
        variant.scratch_paths.retain(|path| *path != to.root);
    }
    Ok(PreparedRow {
        guards: vec![Box::new(server)],
        ..PreparedRow::new(variants)
    })
}

fn quarter_of_a_core(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let quota = CpuQuota::new(0.25)?;
    let mut row = http(fixture, &["curl"], "xz", tmpfs(fixture))?;
    for variant in &mut row.variants {
        let inner = std::mem::take(&mut variant.invocation.arguments);
        variant.invocation.arguments = quota.wrap(inner);
    }
    row.guards.push(Box::new(quota));
    Ok(row)
}

fn push(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(FIREFOX)?;
    let cache = fixture.memory.path().join("cache");
    let url = format!("file://{}?compression=zstd", cache.display());
    let from = corpus.store().display().to_string();
    let sizes = Sizes::default();
    let mut variants = Vec::new();
    for program in &fixture.programs {
        let path = program.path.display().to_string();
        let mut copy = strings(&[&path, "copy", "--no-check-sigs", "--from", &from]);
        copy.extend(strings(&["--to", &url, &corpus.root]));
        let mut variant = variants::variant(fixture, program.name, copy, None);
        variant.scratch_paths.push(cache.clone());
        let paths = corpus.paths.len();
        variant.check = variants::check_cache(cache.clone(), paths, program.name, sizes.clone());
        variants.push(variant);
    }
    Ok(PreparedRow {
        sizes,
        ..PreparedRow::new(variants)
    })
}

fn verify(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(FIREFOX)?;
    let store = corpus.store().display().to_string();
    let mut variants = Vec::new();
    for program in &fixture.programs {
        let path = program.path.display().to_string();
        let command = match program.kind {
            Kind::Floe => strings(&[&path, "verify", "--store", &store]),
            Kind::Nix => {
                let tool = format!("{path}-store");
                strings(&[&tool, "--store", &store, "--verify", "--check-contents"])
            }
        };
        variants.push(variants::variant(fixture, program.name, command, None));
    }
    let mut baseline = Vec::new();
    if let Some(bench) = &fixture.bench {
        let hash = variants::baseline_command(bench, "sha256", corpus.nar_files("none"));
        variants.push(variants::variant(fixture, "hash", hash, None));
        baseline.push("hash");
    }
    Ok(PreparedRow {
        baseline,
        ..PreparedRow::new(variants)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_unique_names_and_every_group_has_one() {
        let plans = crate::closures::all();
        let names: std::collections::BTreeSet<&str> =
            plans.iter().map(|plan| &*plan.name).collect();
        assert_eq!(names.len(), plans.len());
        use Group::{Collect, Copy, Install, Push, Verify};
        for group in [Install, Copy, Push, Verify, Collect] {
            assert!(plans.iter().any(|plan| plan.group == group));
        }
        let count = |wanted: fn(&Aim) -> bool| {
            let aims = plans.iter().map(|plan| plan.aim);
            aims.filter(wanted).count()
        };
        assert_eq!(count(|aim| aim.rival == TAR), 1);
        assert_eq!(count(|aim| aim.cpu.is_some()), 1);
        let is_below_one = |aim: &Aim| aim.time.or(aim.cpu).is_some_and(|most| most < 1.0);
        assert_eq!(count(is_below_one), plans.len());
    }
}
