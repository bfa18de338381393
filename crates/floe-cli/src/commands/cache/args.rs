//! The arguments of `floe cache`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Unit};

use crate::args::{LogArgs, OptionArgs, OutputArgs, TrustArgs, parse_count};
use crate::completions;

/// Commands for a whole binary cache.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Make an empty cache
    Init(InitArgs),
    /// Show how many paths a cache has, how large they are, and how old
    Info(CacheInfoArgs),
    /// List the paths of a cache with their sizes and ages
    List(CacheListArgs),
    /// Delete the paths of a cache that no pin needs
    Gc(CacheGcArgs),
    /// Find damage in a cache: missing objects, wrong sizes, unused files
    Verify(CacheVerifyArgs),
    /// Fetch what is damaged or missing in a cache again
    Repair(CacheRepairArgs),
    /// Sign with a new key what the old key has signed
    RotateKey(CacheRotateKeyArgs),
    /// Delete paths from a cache
    Delete(CacheDeleteArgs),
    /// Write closures into one file, as nix-store --export does
    Export(CacheExportArgs),
    /// Add the paths of a file that floe cache export or nix-store --export has written
    Import(CacheImportArgs),
}

/// The cache, and how the result is shown.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    /// The cache: file:///DIR, s3://BUCKET, or a server that lists its objects
    #[arg(value_name = "CACHE", index = 1)]
    pub(super) cache: String,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) options: OptionArgs,
    #[command(flatten)]
    pub(super) log: LogArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The store directory of its paths [default: /nix/store]
    #[arg(long, value_name = "DIR")]
    pub(super) store_dir: Option<String>,
    #[command(flatten)]
    pub(super) of: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheInfoArgs {
    /// The price of 1 GB (10^9 bytes) for a month, from which the cost follows
    #[arg(long, value_name = "PRICE", value_parser = parse_price)]
    pub(super) price: Option<f64>,
    #[command(flatten)]
    pub(super) of: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheListArgs {
    #[command(flatten)]
    pub(super) of: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheGcArgs {
    /// Keep also the paths that were written within this time, such as 30d, or since a date, such
    /// as 2026-01-31
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    pub(super) keep_since: Option<Duration>,
    /// Keep the paths of this many generations of each pin [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(super) keep_generations: Option<NonZeroUsize>,
    /// Wait this long before the deletion, so that pushes that run notice it; what is younger stays
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_time)]
    pub(super) grace: Duration,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) of: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheVerifyArgs {
    /// Read also the contents of all paths
    #[arg(long)]
    pub(super) contents: bool,
    /// With --contents: read the contents of only this share of the paths, chosen at random
    #[arg(long, value_name = "N%", value_parser = parse_percent, requires = "contents")]
    pub(super) sample: Option<u8>,
    /// Check also that this many trusted keys have signed each path that is not content-addressed
    #[arg(long, short = 'n', value_name = "N", value_parser = parse_count)]
    pub(super) sigs_needed: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(super) of: CacheArgs,
    #[command(flatten)]
    pub(super) trust: TrustArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheRepairArgs {
    /// Fetch from this binary cache or store; may be repeated, and is tried in this order
    /// [default: the substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(super) from: Vec<String>,
    /// Read also the contents of all paths
    #[arg(long)]
    pub(super) contents: bool,
    /// Delete what cannot be used and what no source has, so that clients look elsewhere and the
    /// next push replaces it
    #[arg(long)]
    pub(super) delete: bool,
    /// Show what would be fetched, and change nothing
    #[arg(long, conflicts_with = "delete")]
    pub(super) dry_run: bool,
    /// Sign with the key in this file; may be repeated [default: secret-key and secret-keys of the
    /// URL, else secret-key-files of nix.conf]
    #[arg(value_hint = ValueHint::FilePath, long, value_name = "FILE")]
    pub(super) secret_key_file: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) of: CacheArgs,
    #[command(flatten)]
    pub(super) trust: TrustArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheRotateKeyArgs {
    /// The public key that is replaced
    #[arg(long, value_name = "NAME:KEY")]
    pub(super) old_key: String,
    /// The file of the new secret key
    #[arg(value_hint = ValueHint::FilePath, long, short, value_name = "FILE")]
    pub(super) key_file: PathBuf,
    /// Remove the signatures by the old key; all clients must trust the new one by then
    #[arg(long)]
    pub(super) remove_old: bool,
    /// Show what would be signed, and sign nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) of: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheDeleteArgs {
    /// Delete also the paths that refer to these
    #[arg(long)]
    pub(super) also_referrers: bool,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Store paths, base names or hash parts
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    #[arg(index = 2, required = true)]
    pub(super) paths: Vec<String>,
    #[command(flatten)]
    pub(super) of: CacheArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheExportArgs {
    /// Write into this file, which appears whole or not at all [default: stdout]
    #[arg(value_hint = ValueHint::FilePath, long, short, value_name = "FILE")]
    pub(super) output_file: Option<PathBuf>,
    /// Store paths, base names or hash parts
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    #[arg(index = 2, required = true)]
    pub(super) paths: Vec<String>,
    #[command(flatten)]
    pub(super) of: CacheArgs,
    #[command(flatten)]
    pub(super) trust: TrustArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CacheImportArgs {
    /// The file [default: stdin]
    #[arg(value_hint = ValueHint::FilePath, value_name = "FILE", index = 2)]
    pub(super) file: Option<PathBuf>,
    /// Sign with the key in this file; may be repeated [default: secret-key and secret-keys of the
    /// URL, else secret-key-files of nix.conf]
    #[arg(value_hint = ValueHint::FilePath, long, value_name = "FILE")]
    pub(super) secret_key_file: Vec<PathBuf>,
    /// Show what would be imported, and import nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) of: CacheArgs,
}

/// Parses a time such as `30d`, or a date, as the time since then.
fn parse_since(text: &str) -> Result<Duration, String> {
    let Ok(date) = text.parse::<Date>() else {
        return parse_time(text);
    };
    let then = date.to_zoned(TimeZone::system()).ok();
    let age = then.and_then(|then| SystemTime::now().duration_since(then.into()).ok());
    age.ok_or_else(|| "the date is in the future".into())
}

/// Parses a time such as `30d` or `90 min`. A day has 24 hours.
fn parse_time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<Span>().ok().and_then(|span| {
        let seconds = span.total((Unit::Second, SpanRelativeTo::days_are_24_hours()));
        seconds
            .ok()
            .filter(|seconds| (0.0..=TIME_MAX).contains(seconds))
    });
    let seconds = seconds.ok_or("give a time such as 30d, 12h or 90s")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// The longest time in seconds: a thousand years.
const TIME_MAX: f64 = 1000.0 * 365.0 * 24.0 * 3600.0;

fn parse_price(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(price) if (0.0..1e9).contains(&price) => Ok(price),
        _ => Err("give a price such as 0.023".into()),
    }
}

fn parse_percent(text: &str) -> Result<u8, String> {
    match text.strip_suffix('%').unwrap_or(text).parse() {
        Ok(percent @ 1..=100) => Ok(percent),
        _ => Err("give a share from 1% to 100%".into()),
    }
}
