//! The rows: the requests, the load, and the aims of floe.

use floe_bench::Unit;

use super::checks::ACCEPT_ZSTD;
use super::peers::{NGINX, NIX_SERVE};
use crate::aims::Aim;

/// A row before it is measured.
pub(super) struct RowPlan {
    pub(super) name: String,
    pub(super) unit: Unit,
    pub(super) aim: Aim,
    pub(super) work: Work,
}

/// How requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// As many as this number of connections can send.
    Concurrent(Request, usize),
    /// As `Concurrent`, over TLS.
    Tls(Request, usize),
    /// As `Tls`, with a new connection and a full handshake for each request.
    TlsHandshakes(Request, usize),
    /// One after another on one connection, again and again.
    Sequential(Request),
    /// Each once, one after another, to a server that was just started.
    FreshServer(Request),
    /// By `nix-store -r` into an empty store.
    Realise,
}

/// The requests of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Request {
    Narinfo,
    AbsentNarinfo,
    ClosureNarinfos,
    EmptyNar,
    BigNar,
    ClosureNars,
    /// All NARs with the shape of nixos-minimal.
    ManyNars,
    /// One NAR of 1,000 small files.
    SmallFilesNar,
    /// All NARs of 1,000 small files.
    SmallFilesNars,
    /// A NAR compressed by zstd.
    Zstd,
    TenNarinfos,
    TenOf(Pair),
}

/// A narinfo followed by its NAR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pair {
    Empty,
    Big,
}

/// On a busy machine with two cores, a NAR of 10 MB for each of 16 connections takes longer than
/// the usual round.
pub(super) const LONG_LOAD: u32 = 3;

impl Work {
    pub(super) fn request(self) -> Request {
        match self {
            Work::Realise => Request::ClosureNarinfos,
            Work::Concurrent(request, _)
            | Work::Tls(request, _)
            | Work::TlsHandshakes(request, _)
            | Work::Sequential(request)
            | Work::FreshServer(request) => request,
        }
    }

    /// Whether the requests go to a server with TLS.
    pub(super) fn is_over_tls(self) -> bool {
        matches!(self, Work::Tls(..) | Work::TlsHandshakes(..))
    }

    /// How many times as long as usual a round takes. A server needs longer to send a gigabyte of
    /// NARs once, and to encrypt a large NAR for each of many connections.
    pub(super) fn load_times(self) -> u32 {
        match self {
            Work::Concurrent(Request::ManyNars, _) | Work::Tls(Request::BigNar, _) => LONG_LOAD,
            _ => 1,
        }
    }

    /// Additional header lines of every request.
    pub(super) fn headers(self) -> &'static str {
        match self {
            Work::Concurrent(Request::Zstd, _) => ACCEPT_ZSTD,
            Work::TlsHandshakes(..) => "Connection: close\r\n",
            _ => "",
        }
    }
}

impl Request {
    /// The correct status of every response.
    pub(super) fn status(self) -> u16 {
        match self {
            Request::AbsentNarinfo => 404,
            _ => 200,
        }
    }
}

const AS_FAST: Aim = Aim::speed(NGINX, 1.0);
/// On two cores figures vary by a few percent, so "as fast" allows a tenth.
const NEARLY_AS_FAST: Aim = Aim::speed(NGINX, 0.9);
/// Large bodies are the kernel's work, by sendfile in both.
const NEARLY_AS_CHEAP: Aim = NEARLY_AS_FAST.cpu(1.5);
/// Floe has a narinfo in memory, whereas nginx opens a file for each request.
const FASTER_AND_CHEAPER: Aim = Aim::speed(NGINX, 1.1).cpu(0.75);
/// As `FASTER_AND_CHEAPER`, beside the encryption, which costs both servers the same.
const FASTER_AND_CHEAPER_TLS: Aim = Aim::speed(NGINX, 1.1).cpu(0.85);
/// A handshake is mostly one signature and one key exchange, in two different libraries.
const NEARLY_AS_MANY_HANDSHAKES: Aim = Aim::speed(NGINX, 0.8);
/// Floe opens a thousand files, whereas nginx opens one.
const FIRST_TIME: Aim = Aim::speed(NGINX, 0.4);

/// All rows in the order of the table.
pub(super) fn all() -> Vec<RowPlan> {
    let mut rows = Vec::new();
    for (name, request) in [
        ("present narinfo", Request::Narinfo),
        ("absent narinfo", Request::AbsentNarinfo),
    ] {
        for connections in [1, 16, 64] {
            // With one connection, mostly the latency of the client is measured.
            let aim = match connections {
                1 => Aim::none(NGINX),
                _ => FASTER_AND_CHEAPER,
            };
            rows.push(concurrent(name, request, connections, aim));
        }
    }
    rows.push(RowPlan {
        name: "all narinfos of the closure, sequential".into(),
        unit: Unit::Run,
        aim: Aim::time(NGINX, 1.0),
        work: Work::Sequential(Request::ClosureNarinfos),
    });
    for connections in [1, 16, 64] {
        rows.push(concurrent(
            "empty NAR",
            Request::EmptyNar,
            connections,
            AS_FAST,
        ));
    }
    for connections in [1, 16] {
        rows.push(bytes("10 MB NAR", Request::BigNar, connections));
    }
    for connections in [1, 4, 16] {
        let name = "every NAR of the closure";
        rows.push(bytes(name, Request::ClosureNars, connections));
    }
    for connections in [1, 4, 16] {
        let name = "every NAR of 500 paths like nixos-minimal";
        let row = bytes(name, Request::ManyNars, connections);
        let aim = Aim::none(NGINX);
        rows.push(RowPlan { aim, ..row });
    }
    rows.push(RowPlan {
        name: "NAR of 1,000 small files, first time".into(),
        unit: Unit::Byte,
        aim: FIRST_TIME,
        work: Work::FreshServer(Request::SmallFilesNars),
    });
    for connections in [1, 16] {
        let name = "NAR of 1,000 small files, repeated";
        rows.push(concurrent(
            name,
            Request::SmallFilesNar,
            connections,
            NEARLY_AS_FAST,
        ));
    }
    for connections in [1, 4] {
        let name = "zstd from the compressed NAR cache";
        rows.push(concurrent(name, Request::Zstd, connections, NEARLY_AS_FAST));
    }
    rows.push(RowPlan {
        name: "nix-store -r of the closure".into(),
        unit: Unit::Run,
        aim: Aim::time(NGINX, 1.05),
        work: Work::Realise,
    });
    rows.extend(over_tls());
    rows.extend(announcement());
    rows
}

/// The rows over TLS.
fn over_tls() -> Vec<RowPlan> {
    let mut rows = Vec::new();
    for connections in [1, 16, 64] {
        let aim = match connections {
            // As without TLS.
            1 => Aim::none(NGINX),
            _ => FASTER_AND_CHEAPER_TLS,
        };
        rows.push(RowPlan {
            work: Work::Tls(Request::Narinfo, connections),
            ..concurrent("TLS: present narinfo", Request::Narinfo, connections, aim)
        });
    }
    for connections in [1, 16] {
        rows.push(RowPlan {
            work: Work::Tls(Request::BigNar, connections),
            ..bytes("TLS: 10 MB NAR", Request::BigNar, connections)
        });
    }
    let connections = 16;
    rows.push(RowPlan {
        work: Work::TlsHandshakes(Request::Narinfo, connections),
        ..concurrent(
            "TLS: a full handshake for each narinfo",
            Request::Narinfo,
            connections,
            NEARLY_AS_MANY_HANDSHAKES,
        )
    });
    rows
}

/// The rows of nix-serve-ng's announcement. The aim is the best multiple of nix-serve's speed that
/// a server of a store had when they were last measured side by side.
fn announcement() -> impl Iterator<Item = RowPlan> {
    [
        ("present narinfo ×10", Request::TenNarinfos, 1.58),
        ("absent narinfo ×1", Request::AbsentNarinfo, 2.2),
        (
            "narinfo and empty NAR ×10",
            Request::TenOf(Pair::Empty),
            126.0,
        ),
        ("narinfo and 10 MB NAR ×10", Request::TenOf(Pair::Big), 10.7),
    ]
    .into_iter()
    .map(|(name, request, speed)| RowPlan {
        name: format!("announcement: {name}"),
        unit: Unit::Run,
        aim: Aim::speed(NIX_SERVE, speed),
        work: Work::Sequential(request),
    })
}

fn concurrent(name: &str, request: Request, connections: usize, aim: Aim) -> RowPlan {
    let plural = if connections == 1 { "" } else { "s" };
    RowPlan {
        name: format!("{name}, {connections} connection{plural}"),
        unit: Unit::Request,
        aim,
        work: Work::Concurrent(request, connections),
    }
}

fn bytes(name: &str, request: Request, connections: usize) -> RowPlan {
    RowPlan {
        unit: Unit::Byte,
        ..concurrent(name, request, connections, NEARLY_AS_CHEAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_unique_names() {
        let mut names: Vec<String> = all().into_iter().map(|plan| plan.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
