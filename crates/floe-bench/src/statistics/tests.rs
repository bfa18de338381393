//! Published values, and properties that hold for any samples.

use proptest::prelude::*;

use super::*;

/// A summary of which only mean, standard deviation and size were published.
fn published(mean: f64, sd: f64, len: usize) -> Summary {
    let (median, min, max) = (mean, mean, mean);
    Summary {
        len,
        mean,
        sd,
        median,
        min,
        max,
    }
}

fn assert_near(actual: f64, expected: f64, relative: f64) {
    let off = (actual / expected - 1.0).abs();
    assert!(off <= relative, "{actual} is not {expected}");
}

#[test]
fn summary_of_known_numbers() {
    let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
    assert_eq!((summary.mean, summary.median), (5.0, 4.5));
    assert_eq!((summary.min, summary.max), (2.0, 9.0));
    assert_near(summary.sd, (32.0_f64 / 7.0).sqrt(), 1e-12);
    assert_eq!(Summary::of(&[]), None);
    assert_eq!(Summary::of(&[3.0]).unwrap().sd, 0.0);
}

#[test]
fn median_ignores_the_order() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(&[]), None);
}

/// The example of unequal variances in textbooks and encyclopedias: t −2.46, 25.0 degrees of
/// freedom, p 0.021.
#[test]
fn welch_reproduces_the_published_example() {
    let a = [
        27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4,
    ];
    let b = [
        27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4,
    ];
    let test = welch(&Summary::of(&a).unwrap(), &Summary::of(&b).unwrap()).unwrap();
    assert!((test.t - -2.46).abs() < 0.005, "{test:?}");
    assert!((test.degrees - 25.0).abs() < 0.05, "{test:?}");
    assert!((test.p - 0.021).abs() < 0.0005, "{test:?}");
}

/// The benchmark of a parallel `nix copy` printed means, deviations and p-values of 20 runs each.
/// The inputs are rounded, so the results agree to a digit.
#[test]
fn welch_reproduces_p_values_of_the_nix_copy_benchmark() {
    let of = |a: (f64, f64), b: (f64, f64)| {
        let test = welch(&published(a.0, a.1, 20), &published(b.0, b.1, 20));
        test.unwrap().p
    };
    let disk = of((1.413, 0.026), (1.324, 0.044));
    assert!((5e-9..2e-8).contains(&disk), "{disk}");
    let tmpfs = of((0.909, 0.018), (0.949, 0.027));
    assert!((2e-6..1e-5).contains(&tmpfs), "{tmpfs}");
    assert_near(of((10.731, 1.130), (10.148, 1.063)), 0.10, 0.05);
    assert_near(of((2.096, 0.485), (2.210, 0.551)), 0.49, 0.03);
}

/// With equal sizes and variances the test is Student's. The tables give 2.228 for 10 degrees of
/// freedom and 2.0860 for 20 at 5 %.
#[test]
fn welch_reproduces_students_tables() {
    for (len, point) in [(6, 2.228_139), (11, 2.085_963)] {
        let error = (2.0 / len as f64).sqrt();
        let a = published(10.0 + point * error, 1.0, len);
        let test = welch(&a, &published(10.0, 1.0, len)).unwrap();
        assert_near(test.degrees, (2 * len - 2) as f64, 1e-9);
        assert_near(test.p, 0.05, 1e-5);
    }
}

#[test]
fn interval_touches_one_at_the_level_of_the_test() {
    // With small relative errors the logarithm is nearly linear.
    let (len, point) = (11, 2.085_963);
    let error = (2.0_f64 / len as f64).sqrt();
    let a = published(1e6 + point * error, 1.0, len);
    let found = ratio_of_means(&a, &published(1e6, 1.0, len)).unwrap();
    assert!((found.low - 1.0).abs() < 1e-9, "{found:?}");
    assert!(found.high > found.value);
}

#[test]
fn constant_samples_differ_for_certain_or_not_at_all() {
    let same = Summary::of(&[2.0, 2.0, 2.0]).unwrap();
    let other = Summary::of(&[1.0, 1.0, 1.0]).unwrap();
    assert_eq!(welch(&same, &same).unwrap().p, 1.0);
    assert_eq!(welch(&other, &same).unwrap().p, 0.0);
    assert_eq!(verdict(&other, &same), "faster");
    assert_eq!(verdict(&same, &same), "no difference shown");
    let found = ratio_of_means(&other, &same).unwrap();
    assert_eq!((found.value, found.low, found.high), (0.5, 0.5, 0.5));
}

#[test]
fn few_samples_give_no_verdict() {
    let two = Summary::of(&[1.0, 1.1]).unwrap();
    let many = Summary::of(&[2.0, 2.1, 2.2, 2.0]).unwrap();
    assert_eq!(verdict(&two, &many), "too few runs");
    let one = Summary::of(&[1.0]).unwrap();
    assert_eq!(welch(&one, &many), None);
    assert_eq!(ratio_of_means(&one, &many), None);
}

/// Logarithms −0.1, 0 and 0.1 have the standard error 0.1/√3; Student's tables give 4.3027 for two
/// degrees of freedom.
#[test]
fn paired_ratio_has_students_interval() {
    let ratios = [-0.1_f64, 0.0, 0.1].map(|log| 2.0 * log.exp());
    let found = paired_ratio(&ratios).unwrap();
    let width = (4.302_653 * 0.1 / 3.0_f64.sqrt()).exp();
    assert_near(found.value, 2.0, 1e-12);
    assert_near(found.high, 2.0 * width, 1e-6);
    assert_near(found.low, 2.0 / width, 1e-6);
}

#[test]
fn paired_ratio_without_rounds_or_with_zero_is_none() {
    assert_eq!(paired_ratio(&[]), None);
    assert_eq!(paired_ratio(&[1.0]), None);
    assert_eq!(paired_ratio(&[1.0, 0.0]), None);
    assert_eq!(paired_ratio(&[1.0, f64::INFINITY]), None);
}

/// Both variants take longer in each round, but always in the same ratio.
#[test]
fn paired_ratio_ignores_a_drift_of_the_machine() {
    let b = [1.0, 2.0, 4.0, 8.0];
    let ratios: Vec<f64> = b.iter().map(|b| b * 0.5 / b).collect();
    let found = paired_ratio(&ratios).unwrap();
    assert_near(found.value, 0.5, 1e-12);
    assert_eq!((found.low, found.high), (found.value, found.value));
}

proptest! {
    #[test]
    fn comparison_is_symmetric_and_p_is_a_probability(
        a in prop::collection::vec(0.1_f64..10.0, 2..30),
        b in prop::collection::vec(0.1_f64..10.0, 2..30),
    ) {
        let (a, b) = (Summary::of(&a).unwrap(), Summary::of(&b).unwrap());
        let (forth, back) = (welch(&a, &b).unwrap(), welch(&b, &a).unwrap());
        prop_assert!((0.0..=1.0).contains(&forth.p), "{forth:?}");
        prop_assert!((forth.p - back.p).abs() < 1e-12);
        let (forth, back) = (ratio_of_means(&a, &b).unwrap(), ratio_of_means(&b, &a).unwrap());
        prop_assert!((forth.value * back.value - 1.0).abs() < 1e-9);
        prop_assert!(forth.low <= forth.value && forth.value <= forth.high);
        prop_assert!((forth.low * back.high - 1.0).abs() < 1e-6);
    }
}
