//! Statistics of samples: location, spread, and comparison of two variants.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// Descriptive statistics of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub len: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation with n − 1 in the denominator; 0 for a single sample.
    pub sd: f64,
    /// Median: the middle sample, or the mean of the two middle samples.
    pub median: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
}

impl Summary {
    /// Summarizes samples in any order; `None` without samples.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let len = sorted.len();
        let mean = samples.iter().sum::<f64>() / len as f64;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        Some(Summary {
            len,
            mean,
            sd: (squares / (len - 1).max(1) as f64).sqrt(),
            median: (sorted[(len - 1) / 2] + sorted[len / 2]) / 2.0,
            min,
            max,
        })
    }

    /// The square of the standard error of the mean.
    fn error_squared(&self) -> f64 {
        self.sd.powi(2) / self.len as f64
    }
}

/// The median of samples in any order; `None` without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    Summary::of(samples).map(|summary| summary.median)
}

/// Result of Welch's t-test of two means, two-sided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// Difference of the means in units of its standard error; infinite if nothing varies.
    pub t: f64,
    /// Degrees of freedom, after Satterthwaite.
    pub degrees: f64,
    /// Probability of a difference at least this large if the means were equal.
    pub p: f64,
}

/// Compares two means without assuming equal variances. B. L. Welch, "The generalization of
/// 'Student's' problem when several different population variances are involved", Biometrika 34
/// (1947). `None` with fewer than two samples on either side.
pub fn welch(a: &Summary, b: &Summary) -> Option<Welch> {
    if a.len < 2 || b.len < 2 {
        return None;
    }
    let difference = a.mean - b.mean;
    let (of_a, of_b) = (a.error_squared(), b.error_squared());
    let error = (of_a + of_b).sqrt();
    if error == 0.0 {
        // Nothing varies: the means are either equal or certainly different.
        let (t, p) = if difference == 0.0 {
            (0.0, 1.0)
        } else {
            (difference.signum() * f64::INFINITY, 0.0)
        };
        let degrees = (a.len + b.len - 2) as f64;
        return Some(Welch { t, degrees, p });
    }
    let t = difference / error;
    let degrees = satterthwaite((of_a, a.len), (of_b, b.len));
    let student = StudentsT::new(0.0, 1.0, degrees).ok()?;
    // Use the upper tail itself: 1 − cdf would cancel to 0 for a small p.
    let p = 2.0 * student.sf(t.abs());
    Some(Welch { t, degrees, p })
}

/// Degrees of freedom of a sum of two estimated variances of means, each with its sample size.
fn satterthwaite(a: (f64, usize), b: (f64, usize)) -> f64 {
    let term = |(variance, len): (f64, usize)| variance.powi(2) / (len - 1) as f64;
    (a.0 + b.0).powi(2) / (term(a) + term(b))
}

/// A ratio with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Ratio {
    /// The interval of a ratio whose logarithm has a standard error; `None` if the degrees of
    /// freedom are not positive.
    fn from_log_error(value: f64, error: f64, degrees: f64) -> Option<Ratio> {
        let width = if error == 0.0 {
            1.0
        } else {
            let student = StudentsT::new(0.0, 1.0, degrees).ok()?;
            (student.inverse_cdf(UPPER_QUANTILE) * error).exp()
        };
        let (low, high) = (value / width, value * width);
        Some(Ratio { value, low, high })
    }
}

/// The mean of `a` over the mean of `b`, both positive, from independent samples.
///
/// The interval is that of the logarithm of the ratio, whose variance is the sum of the relative
/// variances of the means (L. V. Hedges, J. Gurevitch, P. S. Curtis, "The meta-analysis of response
/// ratios", Ecology 80, 1999), with Student's distribution and Satterthwaite's degrees of freedom.
/// `None` with fewer than two samples on either side, or with a mean that is not positive.
pub fn ratio_of_means(a: &Summary, b: &Summary) -> Option<Ratio> {
    if a.len < 2 || b.len < 2 || a.mean <= 0.0 || b.mean <= 0.0 {
        return None;
    }
    let of_a = a.error_squared() / a.mean.powi(2);
    let of_b = b.error_squared() / b.mean.powi(2);
    let degrees = satterthwaite((of_a, a.len), (of_b, b.len));
    Ratio::from_log_error(a.mean / b.mean, (of_a + of_b).sqrt(), degrees)
}

/// The geometric mean of the ratios of single rounds, with the interval of a paired t-test of
/// their logarithms.
///
/// A drift of the machine hits both variants of a round alike, so it does not widen this interval.
/// `None` with fewer than two rounds, or with a ratio that is not positive and finite.
pub fn paired_ratio(ratios: &[f64]) -> Option<Ratio> {
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    if logarithms.len() < 2 || logarithms.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let summary = Summary::of(&logarithms)?;
    let error = summary.error_squared().sqrt();
    Ratio::from_log_error(summary.mean.exp(), error, (summary.len - 1) as f64)
}

/// The verdict of the comparison of `a` with `b` at the significance level of 5 %, as shown in
/// reports.
pub fn verdict(a: &Summary, b: &Summary) -> &'static str {
    match welch(a, b) {
        _ if a.len.min(b.len) < SAMPLES_MIN => "too few runs",
        None => "too few runs",
        Some(Welch { p, .. }) if p >= LEVEL => "no difference shown",
        Some(Welch { t, .. }) if t < 0.0 => "faster",
        Some(_) => "slower",
    }
}

/// The usual level of significance.
const LEVEL: f64 = 0.05;

/// Two samples have a variance, but it is too uncertain for a verdict.
const SAMPLES_MIN: usize = 3;

/// Leaves 2.5 % above it, so that a two-sided interval covers 95 %.
const UPPER_QUANTILE: f64 = 0.975;

#[cfg(test)]
mod tests;
