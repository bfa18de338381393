//! The variants of the benchmark `submit`, run only for their counts, not for time.

#[path = "../../benches/submit/library.rs"]
mod library;
#[path = "../../benches/submit/one_run.rs"]
mod one_run;
#[path = "../../benches/submit/variants.rs"]
mod variants;

use one_run::Run;
use variants::Variant;

/// Runs all variants. A run fails if a request is lost or arrives twice.
fn run_all(variants: &[Variant], threads: &[usize], each: u64) {
    assert!(
        variants
            .iter()
            .any(|variant| variant.name == variants::FLOE_QUEUE)
    );
    assert!(variants.iter().filter(|variant| variant.is_channel).count() > 3);
    for variant in variants {
        for &threads in threads {
            let Run { time, busy } = (variant.run)(threads, each);
            let name = variant.name;
            assert!(
                !time.is_zero(),
                "{name}: {threads} threads, {busy} times busy"
            );
        }
    }
}

#[test]
fn benchmark_variants_take_each_request_once() {
    run_all(&variants::all::<2>(), &[1, 100], 100);
    run_all(&variants::all::<8>(), &[1, 2, 8], 1000);
}
