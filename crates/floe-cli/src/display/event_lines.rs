//! The lines about the events of a copy.

use floe_format::path_info::OTHER_SIGNATURES_LEN_MAX;
use floe_transfer::{Event, ServerWait, Size};

use crate::messages::{counted, skipped_rows, waiting_for_resource};

/// Returns the line about an event that users read, except for lines with counts.
pub(super) fn event_line(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Planned { paths: 0, .. } => return None,
        Event::Planned {
            paths,
            nar_bytes,
            download_bytes,
        } => plan(*paths, *nar_bytes, *download_bytes),
        Event::Retrying { path, error } => match path {
            Some(path) => format!("retrying {path}: {error}"),
            None => format!("retrying: {error}"),
        },
        Event::WaitingForServer {
            server,
            wait,
            error,
        } => match wait {
            // The line about the first attempt has the error.
            ServerWait::AtMost(time) => {
                format!("waiting at most {} seconds for {server}", time.as_secs())
            }
            ServerWait::Demanded(time) => {
                format!("waiting {} seconds for {server}: {error}", time.as_secs())
            }
        },
        Event::Failed { error } => format!("floe: {error}"),
        Event::KeptForResume { paths } => {
            let count = counted(*paths, "complete path");
            let pronoun = if *paths == 1 { "it" } else { "them" };
            format!("kept {count} whose references are missing; the next run reuses {pronoun}")
        }
        Event::WaitingForLock { path, seconds } => {
            format!(
                "waiting for a lock on {path}, at most {} minutes",
                seconds / 60
            )
        }
        Event::WaitingForDatabase { what } => waiting_for_resource(what),
        Event::RemoteMessage { store, text } => format!("{store}: {text}"),
        _ => return event_warning(event).map(|warning| format!("floe: warning: {warning}")),
    })
}

/// Returns the warning about an event, if the event needs one.
pub(super) fn event_warning(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::UnusableNetrc { error } => format!("ignoring netrc file: {error}"),
        Event::LowSpace { shortage } if shortage.is_certain => {
            format!("the copy does not fit: {shortage}")
        }
        Event::LowSpace { shortage } => format!("not sure whether the copy fits: {shortage}"),
        Event::AvoidedSource { source, error } => {
            format!("avoiding {source} and using the other sources: {error}")
        }
        Event::PassedOverSource { source, error } => {
            format!("using the other sources instead of {source}: {error}")
        }
        Event::NotSigned { path, what } => format!(
            "not signing {path}: its {what} in the cache is another one than here; delete its \
             narinfo there and push it again"
        ),
        Event::LeaseRefused { error } => format!(
            "pushing without a lease, so that floe cache gc must not run at the same time: {error}"
        ),
        Event::WaitingForCollection => {
            "waiting for floe cache gc, which deletes paths of the cache that are needed".into()
        }
        Event::NotReused { path, place, error } => {
            let place = place.display();
            format!("cannot reuse {path} from {place}, fetching it instead: {error}")
        }
        Event::SkippedRealisations { count } => format!(
            "leaving out {}: floe cannot register them in a store behind a server, so Nix does \
             not know there which outputs the paths are",
            counted(*count, "realisation")
        ),
        Event::UnusableListing { url, reason } => {
            format!("reading the NAR instead of the listing {url}: {reason}")
        }
        Event::SkippedRows { rows } => return skipped_rows(rows),
        Event::SkippedNarInfos { count: 1, first } => format!("leaving out a path: {first}"),
        Event::SkippedNarInfos { count, first } => {
            format!("leaving out {count} paths whose narinfos cannot be used; the first: {first}")
        }
        Event::SkippedBuildLog {
            derivation,
            log_dir,
            error,
        } => {
            let log_dir = log_dir.display();
            format!("skipping the build log of {derivation} in {log_dir}: {error}")
        }
        Event::DamagedPath { path, reason } => {
            format!("replacing {path}: {reason}")
        }
        Event::DroppedSignatures { path, count } => format!(
            "dropping {} of {path} that no trusted key made: floe keeps only well-formed ones, \
             and {OTHER_SIGNATURES_LEN_MAX} bytes of them",
            counted(*count, "signature")
        ),
        Event::DamagedLink { path, link } => format!(
            "replacing the damaged file .links/{link} by an intact one of {path}; floe verify \
             finds other paths with the same damage"
        ),
        _ => return None,
    })
}

fn plan(count: usize, nar_bytes: u64, download_bytes: u64) -> String {
    let (paths, unpacked) = (counted(count, "path"), Size(nar_bytes));
    match download_bytes {
        0 => format!("copying {paths}, {unpacked} unpacked"),
        bytes => format!(
            "copying {paths}: {} to fetch, {unpacked} unpacked",
            Size(bytes)
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::{Expect, expect};
    use floe_format::StorePath;
    use floe_transfer::{Error, Resource, Shortage};

    use super::*;

    #[track_caller]
    fn check(event: Event<'_>, expected: &Expect) {
        expected.assert_eq(&event_line(&event).unwrap());
    }

    fn path() -> StorePath {
        StorePath::parse(&format!("{}-hello-2.12", "0".repeat(32))).unwrap()
    }

    #[test]
    fn progress_messages() {
        expect!["copying 12 paths: 9.0 MiB to fetch, 40 MiB unpacked"].assert_eq(&plan(
            12,
            40 << 20,
            9 << 20,
        ));
        expect!["copying 1 path, 1.0 KiB unpacked"].assert_eq(&plan(1, 1000, 0));
        check(
            Event::WaitingForLock {
                path: &path(),
                seconds: 600,
            },
            &expect![
                "waiting for a lock on 00000000000000000000000000000000-hello-2.12, at most 10 minutes"
            ],
        );
        check(
            Event::WaitingForDatabase {
                what: "the garbage collector",
            },
            &expect!["floe: waiting for the garbage collector"],
        );
        let shortage = Shortage {
            directory: "/mnt/nix/store".into(),
            mount_point: "/mnt".into(),
            kind: Some("ext4"),
            resource: Resource::Bytes,
            wanted: 20 << 30,
            free: 5 << 30,
            is_certain: false,
        };
        check(
            Event::LowSpace {
                shortage: &shortage,
            },
            &expect![
                "floe: warning: not sure whether the copy fits: it needs about 20 GiB in /mnt/nix/store, but /mnt (ext4) has 5.0 GiB free"
            ],
        );
        check(
            Event::KeptForResume { paths: 12 },
            &expect![
                "kept 12 complete paths whose references are missing; the next run reuses them"
            ],
        );
        check(
            Event::NotReused {
                path: &path(),
                place: Path::new("/old/nix/store"),
                error: &Error::Mismatch {
                    path: path(),
                    url: "/old/nix/store".into(),
                    what: "NAR hash",
                    expected: "sha256:a".into(),
                    actual: "sha256:b".into(),
                },
            },
            &expect![
                "floe: warning: cannot reuse 00000000000000000000000000000000-hello-2.12 from /old/nix/store, fetching it instead: cannot accept 00000000000000000000000000000000-hello-2.12 from /old/nix/store: the NAR hash is sha256:b, not sha256:a"
            ],
        );
    }
}
