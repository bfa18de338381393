//! The rows of uploads over a network with a delay, and of reading from where they went: to S3,
//! with versitygw, to nginx by PUT, and to `floe serve --receive`.
//!
//! Debian's Nix cannot sign requests for S3, so the bucket is open to all. floe signs.

mod collection;
mod receiver;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use floe_bench::{BenchError, Variant};

use super::chains::PATHS;
use super::fixture::{Fixture, Kind, NIX, Program};
use super::link::{ClientEnd, Link, LinkOptions};
use super::rows::{Group, PreparedRow, RowPlan, tmpfs};
use super::servers::{Running, start_at};
use super::variants::{self, Sizes, strings};
use crate::aims::{Aim, FLOE, NO_RIVAL};
use crate::corpus::Corpus;
use crate::file_cache;
use crate::programs;
use crate::server::{FileCache, nginx_config};

/// The kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    S3,
    Put,
    FloeServe,
}

/// The work over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Nothing is there.
    Push,
    /// Everything is there.
    PushAgain,
    /// Only the requested path is not there.
    PushChanged,
    Fetch,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    corpus: &'static [&'static str],
    place: Place,
    task: Task,
    millis: u64,
}

/// All rows in the order of the table.
pub(super) fn all() -> Vec<RowPlan> {
    use Place::{FloeServe, Put, S3};
    use Task::{Fetch, Push, PushAgain, PushChanged};
    let rows = [
        ("firefox → S3, 0 ms", FIREFOX, S3, Push, 0, Some(0.60)),
        ("firefox → S3, 20 ms", FIREFOX, S3, Push, 20, Some(0.35)),
        ("300 paths → S3, 20 ms", CHAINS, S3, Push, 20, Some(0.20)),
        (
            "kdenlive → S3, all present, 20 ms",
            KDENLIVE,
            S3,
            PushAgain,
            20,
            None,
        ),
        (
            "kdenlive → S3, one path new, 20 ms",
            KDENLIVE,
            S3,
            PushChanged,
            20,
            None,
        ),
        ("firefox ← S3, 20 ms", FIREFOX, S3, Fetch, 20, Some(0.40)),
        ("300 paths ← S3, 20 ms", CHAINS, S3, Fetch, 20, Some(0.20)),
        ("firefox → PUT, 50 ms", FIREFOX, Put, Push, 50, Some(0.25)),
        ("300 paths → PUT, 50 ms", CHAINS, Put, Push, 50, Some(0.17)),
        (
            "firefox → floe serve, 0 ms",
            FIREFOX,
            FloeServe,
            Push,
            0,
            Some(0.5),
        ),
    ];
    let rows = rows
        .into_iter()
        .map(|(name, corpus, place, task, millis, most)| {
            let work = Work {
                corpus,
                place,
                task,
                millis,
            };
            RowPlan {
                group: Group::Upload,
                name: name.into(),
                aim: most.map_or(Aim::none(NIX), |most| Aim::time(NIX, most)),
                prepare: Box::new(move |fixture| prepare(fixture, work)),
            }
        });
    let mut rows: Vec<RowPlan> = rows.collect();
    rows.push(RowPlan {
        group: Group::Upload,
        name: "300 paths → S3, 20 ms, beside rclone".into(),
        aim: Aim::time(RCLONE, 1.0),
        prepare: Box::new(beside_rclone),
    });
    rows.push(RowPlan {
        group: Group::Upload,
        name: "gc of 100,000 narinfos, S3, 20 ms".into(),
        aim: Aim::none(NO_RIVAL).seconds(180.0).megabytes(315.0),
        prepare: Box::new(collection::prepare),
    });
    rows.push(RowPlan {
        group: Group::Upload,
        name: "firefox → floe serve, 0 ms, beside versitygw".into(),
        aim: Aim::time(VERSITYGW, 0.8),
        prepare: Box::new(beside_versitygw),
    });
    rows
}

/// floe pushes to both servers.
fn beside_versitygw(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let work = |place| Work {
        corpus: FIREFOX,
        place,
        task: Task::Push,
        millis: 0,
    };
    let link = new_link(0)?;
    let end = link.enter()?;
    let mut row = prepare_on(fixture, work(Place::FloeServe), &link, None)?;
    row.variants.retain(|variant| variant.name == FLOE);
    let other = prepare_on(fixture, work(Place::S3), &link, None)?;
    for mut variant in other.variants {
        if variant.name == FLOE {
            variant.name = VERSITYGW.into();
            row.variants.push(variant);
        }
    }
    row.guards.extend(other.guards);
    Ok(on_link(row, link, end))
}

/// Keeps the link of a row as long as its servers, and this thread at its near end.
fn on_link<'a>(mut row: PreparedRow<'a>, link: Rc<Link>, end: ClientEnd) -> PreparedRow<'a> {
    row.guards.insert(0, Box::new(end));
    row.guards.push(Box::new(link));
    row
}

fn new_link(millis: u64) -> Result<Rc<Link>> {
    let link = Link::new(LinkOptions {
        round_trip: Duration::from_millis(millis),
        rate: None,
        loss: None,
        stalls: None,
    })?;
    Ok(Rc::new(link))
}

const VERSITYGW: &str = "to versitygw";

/// floe makes and sends the NARs; rclone sends files that floe has made before.
fn beside_rclone(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let work = Work {
        corpus: CHAINS,
        place: Place::S3,
        task: Task::Push,
        millis: 20,
    };
    let mut row = prepare_with(fixture, work, Some(rclone(fixture, work)?))?;
    row.variants
        .retain(|variant| [FLOE, RCLONE].contains(&&*variant.name));
    Ok(row)
}

/// The upload of a cache that floe has made before.
fn rclone(fixture: &Fixture, work: Work) -> Result<Variant<'_>> {
    let corpus = fixture.corpus(work.corpus)?;
    let ready = fixture.memory.path().join("ready");
    floe_bench::remove_tree(&ready)?;
    push_with_floe(fixture, &corpus, &format!("file://{}", ready.display()))?;
    let rclone = programs::installed("rclone", "rclone")?;
    let [access, secret] = KEYS.map(|(_, value)| value);
    let mut all = strings(&[
        &rclone.display().to_string(),
        "copy",
        "--config",
        "/dev/null",
    ]);
    all.extend(strings(&["--transfers", "16", "--s3-provider", "Other"]));
    all.extend(strings(&[
        "--s3-endpoint",
        &endpoint(),
        "--s3-access-key-id",
        access,
    ]));
    all.extend(strings(&["--s3-secret-access-key", secret]));
    all.extend(strings(&[
        &ready.display().to_string(),
        &format!(":s3:{BUCKET}"),
    ]));
    let mut variant = variants::variant(fixture, RCLONE, all, None);
    // rclone 1.60 cannot use the variable.
    variant
        .invocation
        .environment
        .push(("AWS_CA_BUNDLE".into(), None));
    Ok(variant)
}

const RCLONE: &str = "rclone";

const FIREFOX: &[&str] = &["firefox", "firefox-esr"];
const KDENLIVE: &[&str] = &["kdenlive"];
const CHAINS: &[&str] = &["chains"];

fn prepare(fixture: &Fixture, work: Work) -> Result<PreparedRow<'_>> {
    prepare_with(fixture, work, None)
}

/// Prepares a row, perhaps with rclone, which pushes too.
fn prepare_with<'a>(
    fixture: &'a Fixture,
    work: Work,
    rclone: Option<Variant<'a>>,
) -> Result<PreparedRow<'a>> {
    let link = new_link(work.millis)?;
    let end = link.enter()?;
    let row = prepare_on(fixture, work, &link, rclone)?;
    Ok(on_link(row, link, end))
}

/// Prepares a row whose client is at the near end of a link.
fn prepare_on<'a>(
    fixture: &'a Fixture,
    work: Work,
    link: &Rc<Link>,
    rclone: Option<Variant<'a>>,
) -> Result<PreparedRow<'a>> {
    let corpus = fixture.corpus(work.corpus)?;
    ensure!(
        work.corpus != CHAINS || corpus.paths.len() == PATHS,
        "the chains are incomplete"
    );
    let (server, scratch) = serve(fixture, link, work.place)?;
    let cache = scratch.join("buckets").join(BUCKET);
    let url = match work.place {
        Place::S3 => bucket_url(),
        Place::Put => endpoint(),
        Place::FloeServe => format!("http://{}:{RECEIVER_PORT}", Link::SERVER),
    };
    if work.task != Task::Push {
        push_with_floe(fixture, &corpus, &url)?;
    }
    let sizes = Sizes::default();
    let mut found = Vec::new();
    if let Some(mut variant) = rclone {
        let paths = corpus.paths.len();
        let check = variants::check_cache(cache.clone(), paths, RCLONE, sizes.clone());
        variant.check = check;
        let cache = cache.clone();
        variant.prepare = Box::new(move || empty(&cache));
        found.push(variant);
    }
    for program in fixture
        .programs
        .iter()
        .filter(|program| can_use(program, work.place))
    {
        let mut variant = match work.task {
            Task::Fetch => {
                let from = (program, &*url);
                let to = tmpfs(fixture);
                variants::unsigned_copy(fixture, &corpus, from, &to)?
            }
            _ => push(fixture, &corpus, (program, &url)),
        };
        if work.task == Task::Push {
            let cache = cache.clone();
            variant.prepare = Box::new(move || empty(&cache));
        }
        if work.task == Task::PushChanged {
            let (cache, root) = (cache.clone(), corpus.root.clone());
            variant.prepare = Box::new(move || file_cache::remove_path(&cache, &root));
        }
        if work.task != Task::Fetch {
            let paths = corpus.paths.len();
            variant.check =
                variants::check_cache(cache.clone(), paths, program.name, sizes.clone());
        }
        if work.place == Place::FloeServe {
            variant
                .invocation
                .arguments
                .extend(receiver::login(&scratch));
        }
        if program.kind == Kind::Floe && work.place == Place::S3 {
            let keys = KEYS.map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
            variant.invocation.environment.extend(keys);
        }
        found.push(variant);
    }
    let traffic = super::network::count_traffic(link, &mut found);
    Ok(PreparedRow {
        sizes,
        traffic,
        guards: vec![Box::new(server)],
        ..PreparedRow::new(found)
    })
}

/// Starts a server at the far end of a link. Returns the directory of its files.
fn serve(fixture: &Fixture, link: &Link, place: Place) -> Result<(Running, PathBuf)> {
    let scratch = fixture.memory.path().join(match place {
        Place::FloeServe => "received",
        _ => "uploads",
    });
    let cache = scratch.join("buckets").join(BUCKET);
    floe_bench::remove_tree(&scratch)?;
    fs::create_dir_all(&cache).context("cannot create a bucket")?;
    let server = match place {
        Place::S3 => s3(fixture, link, &scratch)?,
        Place::Put => nginx(link, &cache, &scratch)?,
        Place::FloeServe => {
            let address = (Link::SERVER, RECEIVER_PORT);
            receiver::start(fixture, (link, address), (&cache, &scratch))?
        }
    };
    Ok((server, scratch))
}

fn bucket_url() -> String {
    format!("s3://{BUCKET}?endpoint={}&region=us-east-1", endpoint())
}

/// The old Nix has no S3.
fn can_use(program: &Program, place: Place) -> bool {
    place != Place::S3 || matches!(program.kind, Kind::Floe) || program.name == NIX
}

/// A copy from the store of a corpus.
fn push<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    (program, url): (&Program, &str),
) -> Variant<'a> {
    let separator = if url.contains('?') { '&' } else { '?' };
    let to = format!("{url}{separator}compression=zstd");
    let from = corpus.store().display().to_string();
    let path = program.path.display().to_string();
    let mut all = strings(&[&path, "copy", "--no-check-sigs", "--from", &from]);
    all.extend(strings(&["--to", &to, &corpus.root]));
    variants::variant(fixture, program.name, all, None)
}

fn push_with_floe(fixture: &Fixture, corpus: &Corpus, url: &str) -> Result<()> {
    let floe = fixture.floe()?;
    let push = push(fixture, corpus, (floe, url));
    let mut command = fixture
        .settings
        .command((&push.invocation.arguments[0]).into());
    command.args(&push.invocation.arguments[1..]).envs(KEYS);
    let status = command.stderr(Stdio::null()).status();
    ensure!(status?.success(), "floe cannot push");
    Ok(())
}

/// Removes all objects. The directories stay, because a server may have opened them.
fn empty(cache: &Path) -> Result<(), BenchError> {
    let failed = |error: std::io::Error| BenchError::Result(error.to_string());
    for entry in fs::read_dir(cache).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            empty(&path)?;
        } else {
            fs::remove_file(path).map_err(failed)?;
        }
    }
    Ok(())
}

fn s3(fixture: &Fixture, link: &Link, scratch: &Path) -> Result<Running> {
    let program = programs::versitygw(fixture.root())?;
    let mut command = link.server_command(&program.display().to_string())?;
    let [access, secret] = KEYS.map(|(_, value)| value);
    command
        .args(["--access", access, "--secret", secret])
        .args(["--port", &format!("{}:{PORT}", Link::SERVER)])
        .args(["--keep-alive", "--quiet", "posix", "--sidecar"])
        .arg(directory(scratch, "metadata")?)
        .arg(scratch.join("buckets"));
    let running = start_at(command, ADDRESS)?;
    open_to_all(access, secret)?;
    Ok(running)
}

fn directory(scratch: &Path, name: &str) -> Result<PathBuf> {
    let directory = scratch.join(name);
    fs::create_dir_all(&directory).context("cannot create a directory")?;
    Ok(directory)
}

/// Lets everybody use the bucket.
fn open_to_all(access: &str, secret: &str) -> Result<()> {
    let policy = serde_json::json!({
        "Version": "2012-10-17",
        "Statement": [{
            "Effect": "Allow",
            "Principal": "*",
            "Action": ["s3:GetObject", "s3:PutObject", "s3:ListBucket"],
            "Resource": [format!("arn:aws:s3:::{BUCKET}"), format!("arn:aws:s3:::{BUCKET}/*")],
        }],
    });
    let mut curl = Command::new(programs::installed("curl", "curl")?);
    curl.args(["--silent", "--fail", "--request", "PUT"])
        .args(["--aws-sigv4", "aws:amz:us-east-1:s3"])
        .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"])
        .args(["--user", &format!("{access}:{secret}")])
        .args(["--data-binary", &policy.to_string()])
        .arg(format!("{}/{BUCKET}?policy=", endpoint()));
    let status = curl.status().context("cannot run curl")?;
    ensure!(status.success(), "curl cannot set the policy: {status}");
    Ok(())
}

/// nginx, which takes uploads, at the server's end of a link.
fn nginx(link: &Link, cache: &Path, scratch: &Path) -> Result<Running> {
    let files = FileCache {
        root: cache,
        prefix: "",
        certificate: None,
    };
    let listen = format!("{}:{PORT}", Link::SERVER);
    let text = nginx_config(&files, (&listen, 2), scratch);
    let methods = "dav_methods PUT; create_full_put_path on; client_max_body_size 0;";
    let text = text.replacen("server { ", &format!("server {{ {methods} "), 1);
    let config = scratch.join("nginx.conf");
    fs::write(&config, text).context("cannot write nginx.conf")?;
    let nginx = programs::installed("nginx", "nginx")?;
    let mut command = link.server_command(&nginx.display().to_string())?;
    command.arg("-c").arg(config).args(["-e", "stderr"]);
    start_at(command, ADDRESS)
}

fn endpoint() -> String {
    format!("http://{}:{PORT}", Link::SERVER)
}

const BUCKET: &str = "team";

const PORT: u16 = 8445;

const RECEIVER_PORT: u16 = 8446;

const ADDRESS: (Ipv4Addr, u16) = (Link::SERVER, PORT);

/// The keys of the server's only account.
const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "bench"),
    ("AWS_SECRET_ACCESS_KEY", "benchsecret"),
];
