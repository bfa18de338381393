//! The arguments of `floe serve`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use floe_server::Listen;

use super::{AccessLogFormat, parse_timeout};
use crate::exit::UsageError;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen on HOST:PORT, :PORT or unix:PATH, IPv6 hosts in brackets; may be repeated [default:
    /// *:5000]
    #[arg(long, short, value_name = "HOST:PORT", value_parser = floe_server::address::parse)]
    pub(crate) listen: Vec<Listen>,
    /// Listen on this host; * is every address, *4 every IPv4 and *6 every IPv6 address
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Listen on this port; 0 lets the system choose one [default: 5000]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Listen on a Unix socket
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The store to serve: auto, local, a directory, local?root=DIR; daemon means the store
    /// behind it
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// The store below this directory (DIR/nix/store)
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) root: Option<PathBuf>,
    /// The store directory that the paths name
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Sign with the key in this file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_key_file: Vec<PathBuf>,
    /// Clients ask the cache with the lowest priority first [default: 30]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// Whether NARs go out compressed to clients that accept it [default: cached with
    /// --side-cache, else off]
    #[arg(long, value_name = "WHEN")]
    pub(crate) compress: Option<CompressMode>,
    /// Keep compressed NARs in this directory, which belongs to floe
    #[arg(long, value_name = "DIR")]
    pub(crate) side_cache: Option<PathBuf>,
    /// How many bytes the side cache may hold, as in 500M or 20G [default: 10G]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "side_cache")]
    pub(crate) side_cache_size: Option<u64>,
    /// Write a line for each request to this file, or to stdout with -
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    /// The form of these lines, on stdout unless --access-log names a file
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<AccessLogFormat>,
    /// How many threads answer requests [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// How many connections may be open at once; more of them wait [default: 8192, or what the
    /// limit of open files allows]
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<NonZeroUsize>,
    /// How long a connection may idle between two requests [default: 120]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub(crate) keepalive_timeout: Option<Duration>,
    /// How long a client may take to send the head of a request [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub(crate) read_timeout: Option<Duration>,
    /// How long a client may leave an answer unread [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Settings of harmonia, in TOML; flags and the environment win over them
    #[arg(long, value_name = "FILE", env = "CONFIG_FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Do everything but serve: open the store, read the keys, listen; say what would be served
    #[arg(long)]
    pub(crate) check: bool,
}

/// `--compress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressMode {
    /// Never
    Off,
    /// When a compressed copy is ready in the side cache; else one is made for the next time
    Cached,
    /// Always, if need be while it is sent
    Always,
}

/// A number of bytes; K, M, G and T are powers of 1024.
fn parse_bytes(text: &str) -> Result<u64, UsageError> {
    let wrong = || {
        UsageError(format!(
            "{text:?} is not a number of bytes, as in 500M or 20G"
        ))
    };
    let power = |letter| UNITS.iter().position(|unit| *unit == letter);
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, last)) if !last.is_ascii_digit() => {
            let power = power(last.to_ascii_uppercase()).ok_or_else(wrong)?;
            (&text[..at], 1024_u64.pow(power as u32 + 1))
        }
        _ => (text, 1),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).ok_or_else(wrong)
}

/// Each is 1024 times the one before it.
const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use proptest::prelude::*;

    use crate::args::{Cli, Command};

    fn parse(args: &[&str]) -> Result<ServeArgs, String> {
        let line = ["floe", "serve"].iter().chain(args);
        match Cli::try_parse_from(line) {
            Ok(Cli {
                command: Command::Serve(args),
                ..
            }) => Ok(*args),
            Ok(_) => Err("another command".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn options_may_be_repeated_where_several_make_sense() {
        let args = parse(&[
            "--listen",
            ":80",
            "-l",
            "unix:/s",
            "--secret-key-file",
            "a",
            "--secret-key-file=b",
        ])
        .unwrap();
        assert_eq!(args.listen.len(), 2);
        assert_eq!(args.secret_key_file.len(), 2);
    }

    #[test]
    fn a_wrong_value_is_named_with_its_option() {
        for (args, part) in [
            (&["--listen", "5000"], "--listen"),
            (&["--listen", ":1:ssl"], "proxy"),
            (&["--port", "65536"], "65536"),
            (&["--timeout", "0"], "--timeout"),
            (&["--compress", "maybe"], "maybe"),
            (&["--side-cache-size", "5G"], "--side-cache"),
            (&["--log-format", "loud"], "loud"),
            (&["--threads", "0"], "0"),
        ] {
            let message = parse(args).unwrap_err();
            assert!(message.contains(part), "{args:?}: {message}");
        }
    }

    #[test]
    fn sizes_have_letters_for_powers_of_1024() {
        assert_eq!(parse_bytes("10").unwrap(), 10);
        assert_eq!(parse_bytes("2k").unwrap(), 2048);
        assert_eq!(parse_bytes("3G").unwrap(), 3 << 30);
        for text in ["", "G", "-1", "1.5G", "1GB", "99999999T", "1é", "+1"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_size_is_read_back(number in 0_u64..1 << 20, unit in 0_usize..4) {
            let text = format!("{number}{}", UNITS[unit]);
            prop_assert_eq!(parse_bytes(&text).unwrap(), number << (10 * (unit + 1)));
        }
    }
}
