//! What the benchmark of submits compares, run for its counts alone: no time is looked at here.

#[path = "../../benches/submit/designs.rs"]
mod designs;
#[path = "../../benches/submit/library.rs"]
mod library;
#[path = "../../benches/submit/one_run.rs"]
mod one_run;

use designs::Design;
use one_run::Run;

/// As many from each thread; the run itself fails if one is lost or comes twice.
fn run_all(designs: &[Design], threads: &[usize], each: u64) {
    assert!(designs.iter().any(|design| design.name == designs::LANES));
    assert!(designs.iter().any(|design| design.name == designs::SHARDS));
    assert!(designs.iter().filter(|design| design.is_channel).count() > 3);
    for design in designs {
        for &threads in threads {
            let Run { time, busy } = (design.run)(threads, each);
            let name = design.name;
            assert!(
                !time.is_zero(),
                "{name}: {threads} threads, {busy} times busy"
            );
        }
    }
}

#[test]
fn every_queue_of_the_benchmark_takes_each_request_once() {
    run_all(&designs::all::<2>(), &[1, 100], 100);
    run_all(&designs::all::<8>(), &[1, 2, 8], 1000);
}
