//! `cargo xtask bench WHAT`: floe beside its peers, on one machine, in one run.
//!
//! Every benchmark here keeps the same rules. The variants take turns, and each figure is the
//! median of several rounds, for a machine's speed drifts. What a variant answers is compared with
//! what is right before its times count. A peer that did not run has no figures, only a reason.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool: it prints to the terminal"
)]

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use xtask::workspace;

mod baseline;
mod checks;
mod embedded;
mod figures;
mod http;
mod load;
mod moves;
mod options;
mod peers;
mod processes;
mod realise;
mod record;
mod rows;
mod serve;
mod svg;
mod table;
mod workload;

/// How a command ended, when it could do its work at all.
enum Outcome {
    Good,
    Bad,
    Usage(String),
}

struct Benchmark {
    name: &'static str,
    about: &'static str,
    run: fn(&Path, &[String]) -> Result<Outcome>,
}

const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "serve",
        about: options::USAGE,
        run: serve::command,
    },
    Benchmark {
        name: "install",
        about: "    closures from caches; options as below",
        run: moves::install,
    },
    Benchmark {
        name: "copy",
        about: "    closures between local stores; options as below",
        run: moves::copy,
    },
    Benchmark {
        name: "push",
        about: "    closures into a cache; options as below",
        run: moves::push,
    },
    Benchmark {
        name: "verify",
        about: "    contents of a store; options as below",
        run: moves::verify,
    },
    Benchmark {
        name: "moves",
        about: moves::USAGE,
        run: moves::all,
    },
    Benchmark {
        name: "submit",
        about: "    requests that threads hand to libfloe and to other queues; options:\n    \
                [--threads 1,2,4] [--per-thread N] [--iters N] [--no-gate] [--json FILE]\n    \
                [--record]             writes bench/results/submit.md",
        run: embedded::submit,
    },
    Benchmark {
        name: "codec",
        about: "    the codecs of libfloe beside others; [--iters N] [--include-1mib]\n    \
                [--no-gate] [--json FILE] [--record]",
        run: embedded::codec,
    },
    Benchmark {
        name: "call",
        about: "    round trips from C++ through libfloe; options as for submit",
        run: embedded::call,
    },
    Benchmark {
        name: "baseline",
        about: "    WHAT …    a part of a move and nothing else, for benchmarks to compare with",
        run: baseline::command,
    },
    Benchmark {
        name: "all",
        about: "    everything, one after the other; takes --quick",
        run: everything,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match workspace::root().and_then(|root| command(&root, &arguments)) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Ok(Outcome::Usage(problem)) => {
            eprintln!("bench: {problem}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Each of them holds the machine for itself.
fn everything(root: &Path, arguments: &[String]) -> Result<Outcome> {
    if let Some(other) = arguments.iter().find(|argument| *argument != "--quick") {
        return Ok(Outcome::Usage(format!("bench all takes no `{other}`")));
    }
    let mut worst = Outcome::Good;
    for run in [
        moves::all,
        serve::command,
        embedded::submit,
        embedded::codec,
        embedded::call,
    ] {
        match run(root, arguments)? {
            Outcome::Good => {}
            other => worst = other,
        }
    }
    Ok(worst)
}

fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let Some(what) = arguments.first() else {
        print!("{}", overview());
        return Ok(Outcome::Good);
    };
    match BENCHMARKS.iter().find(|known| known.name == what) {
        Some(benchmark) => (benchmark.run)(root, &arguments[1..]),
        None => Ok(Outcome::Usage(format!(
            "there is no benchmark `{what}`\n{}",
            overview()
        ))),
    }
}

fn overview() -> String {
    let mut text = String::from("benchmarks:\n");
    for benchmark in BENCHMARKS {
        text += &format!(
            "  cargo xtask bench {}\n{}\n",
            benchmark.name, benchmark.about
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overview_names_every_benchmark() {
        let text = overview();
        for benchmark in BENCHMARKS {
            assert!(
                text.contains(&format!("bench {}", benchmark.name)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_benchmark_that_does_not_exist_is_a_mistake_of_the_caller() {
        let outcome = command(Path::new("."), &["speed".into()]).unwrap();
        assert!(matches!(outcome, Outcome::Usage(text) if text.contains("`speed`")));
    }
}
