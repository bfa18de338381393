//! The rows of `bench serve`: what is asked for, how, and what floe wants to reach.

use super::figures::{Aim, Measure, Speed};

/// A row before it is measured.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) measure: Measure,
    pub(super) aim: Aim,
    pub(super) work: Work,
}

/// How the requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Work {
    /// As many as so many connections take.
    Many(What, usize),
    /// One after another on one connection, over and over.
    InTurn(What),
    /// Each once, one after another, of a server that has just started.
    Fresh(What),
    /// By `nix-store -r` into an empty store.
    Realise,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    Narinfo,
    Absent,
    ClosureNarinfos,
    Empty,
    Big,
    ClosureNars,
    Small,
    SmallPaths,
    Zstd,
    TenNarinfos,
    TenOf(Pair),
}

/// A NAR that is asked for after its narinfo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pair {
    Empty,
    Big,
}

const AT_LEAST_AS_FAST: Aim = Aim {
    speed: Some(Speed::AtLeast(1.0)),
    cpu: None,
};
/// Two cores make a hundredth more or less by chance, so "as fast" leaves a tenth.
const NEARLY_AS_FAST: Aim = Aim {
    speed: Some(Speed::AtLeast(0.9)),
    cpu: None,
};
/// Large bodies are the kernel's work, which floe can do as nginx does.
const NEARLY_AS_CHEAP: Aim = Aim {
    speed: Some(Speed::AtLeast(0.9)),
    cpu: Some(1.5),
};
/// A narinfo is in floe's memory, where nginx opens a file for each request.
const FASTER_AND_CHEAPER: Aim = Aim {
    speed: Some(Speed::AtLeast(1.1)),
    cpu: Some(0.75),
};
/// A thousand files must be opened, where nginx has one.
const FIRST_TIME: Aim = Aim {
    speed: Some(Speed::AtLeast(0.4)),
    cpu: None,
};
const NO_AIM: Aim = Aim {
    speed: None,
    cpu: None,
};

/// All rows, in the order of the table.
pub(super) fn all() -> Vec<Plan> {
    let mut rows = Vec::new();
    for (name, what, aim) in [
        ("present narinfo", What::Narinfo, FASTER_AND_CHEAPER),
        ("absent narinfo", What::Absent, FASTER_AND_CHEAPER),
    ] {
        for connections in [1, 16, 64] {
            // With one connection the client decides: each waits for the other.
            let aim = if connections == 1 { NO_AIM } else { aim };
            rows.push(many(name, what, connections, aim));
        }
    }
    rows.push(Plan {
        name: "all narinfos of the closure in turn".into(),
        measure: Measure::Time,
        aim: within(1.0),
        work: Work::InTurn(What::ClosureNarinfos),
    });
    for connections in [1, 16, 64] {
        rows.push(many(
            "empty NAR",
            What::Empty,
            connections,
            AT_LEAST_AS_FAST,
        ));
    }
    for connections in [1, 16] {
        rows.push(bytes("10 MB NAR", What::Big, connections));
    }
    for connections in [1, 4, 16] {
        rows.push(bytes(
            "every NAR of the closure",
            What::ClosureNars,
            connections,
        ));
    }
    rows.push(Plan {
        name: "NAR of 1,000 small files, first time".into(),
        measure: Measure::Bytes,
        aim: FIRST_TIME,
        work: Work::Fresh(What::SmallPaths),
    });
    for connections in [1, 16] {
        let name = "NAR of 1,000 small files, repeated";
        rows.push(many(name, What::Small, connections, NEARLY_AS_FAST));
    }
    for connections in [1, 4] {
        let name = "zstd from the side cache";
        rows.push(many(name, What::Zstd, connections, NEARLY_AS_FAST));
    }
    rows.push(Plan {
        name: "nix-store -r of the closure".into(),
        measure: Measure::Time,
        aim: within(1.05),
        work: Work::Realise,
    });
    rows.extend(announcement());
    rows
}

/// The rows of nix-serve-ng's announcement; floe wants to beat the best multiple that a server
/// of a store had when they were last measured side by side.
fn announcement() -> impl Iterator<Item = Plan> {
    [
        ("announcement: present narinfo ×10", What::TenNarinfos, 1.58),
        ("announcement: absent narinfo ×1", What::Absent, 2.2),
        (
            "announcement: narinfo and empty NAR ×10",
            What::TenOf(Pair::Empty),
            126.0,
        ),
        (
            "announcement: narinfo and 10 MB NAR ×10",
            What::TenOf(Pair::Big),
            10.7,
        ),
    ]
    .into_iter()
    .map(|(name, what, times)| Plan {
        name: name.into(),
        measure: Measure::Time,
        aim: Aim {
            speed: Some(Speed::OverNixServe(times)),
            cpu: None,
        },
        work: Work::InTurn(what),
    })
}

fn within(times: f64) -> Aim {
    Aim {
        speed: Some(Speed::TimeAtMost(times)),
        cpu: None,
    }
}

fn many(name: &str, what: What, connections: usize, aim: Aim) -> Plan {
    Plan {
        name: format!("{name}, {}", connections_of(connections)),
        measure: Measure::Requests,
        aim,
        work: Work::Many(what, connections),
    }
}

fn bytes(name: &str, what: What, connections: usize) -> Plan {
    Plan {
        measure: Measure::Bytes,
        ..many(name, what, connections, NEARLY_AS_CHEAP)
    }
}

fn connections_of(count: usize) -> String {
    match count {
        1 => "1 connection".into(),
        _ => format!("{count} connections"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let mut names: Vec<String> = all().into_iter().map(|plan| plan.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
