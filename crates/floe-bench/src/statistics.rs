//! What samples say: their middle, their spread, and whether two sets of them differ.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

/// A set of samples in six numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many samples there are.
    pub len: usize,
    /// Their arithmetic mean.
    pub mean: f64,
    /// Their standard deviation, with n − 1 below the line; 0 for a single sample.
    pub sd: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// `None` without samples.
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

/// Welch's t-test of two means, two-sided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// The difference of the means in units of its standard error; infinite where nothing varies.
    pub t: f64,
    /// Degrees of freedom, after Satterthwaite.
    pub degrees: f64,
    /// How likely a difference this large would be if there was none.
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
        // Nothing varies: equal means are equal, and others are not.
        let (t, p) = match difference == 0.0 {
            true => (0.0, 1.0),
            false => (difference.signum() * f64::INFINITY, 0.0),
        };
        let degrees = (a.len + b.len - 2) as f64;
        return Some(Welch { t, degrees, p });
    }
    let t = difference / error;
    let degrees = satterthwaite((of_a, a.len), (of_b, b.len));
    let student = StudentsT::new(0.0, 1.0, degrees).ok()?;
    // The upper tail itself, for 1 − cdf would have lost a small one.
    let p = 2.0 * student.sf(t.abs());
    Some(Welch { t, degrees, p })
}

/// Degrees of freedom of a sum of two estimated variances of means, each with its sample size.
fn satterthwaite(a: (f64, usize), b: (f64, usize)) -> f64 {
    let below = |(variance, len): (f64, usize)| variance.powi(2) / (len - 1) as f64;
    (a.0 + b.0).powi(2) / (below(a) + below(b))
}

/// A ratio of two means and the interval that it lies in with a confidence of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The mean of `a` over that of `b`, both positive; the interval is that of the logarithm of the
/// ratio, whose variance is the sum of the relative variances of the means (L. V. Hedges,
/// J. Gurevitch, P. S. Curtis, "The meta-analysis of response ratios", Ecology 80, 1999), with
/// Student's distribution and Satterthwaite's degrees of freedom. `None` with fewer than two
/// samples on either side, or a mean that is not positive.
pub fn ratio(a: &Summary, b: &Summary) -> Option<Ratio> {
    if a.len < 2 || b.len < 2 || a.mean <= 0.0 || b.mean <= 0.0 {
        return None;
    }
    let value = a.mean / b.mean;
    let (of_a, of_b) = (
        a.error_squared() / a.mean.powi(2),
        b.error_squared() / b.mean.powi(2),
    );
    let error = (of_a + of_b).sqrt();
    if error == 0.0 {
        let (low, high) = (value, value);
        return Some(Ratio { value, low, high });
    }
    let degrees = satterthwaite((of_a, a.len), (of_b, b.len));
    let student = StudentsT::new(0.0, 1.0, degrees).ok()?;
    let width = (student.inverse_cdf(UPPER_QUANTILE) * error).exp();
    Some(Ratio {
        value,
        low: value / width,
        high: value * width,
    })
}

/// The median of the quotients of what two variants did in the same rounds, which no drift of
/// the machine touches; `None` without a round.
pub fn paired_ratio(a: &[f64], b: &[f64]) -> Option<f64> {
    let quotients: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    Summary::of(&quotients).map(|summary| summary.median)
}

/// What may be said of two means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first is smaller, and that is no accident.
    Faster,
    /// The first is larger, and that is no accident.
    Slower,
    /// The samples do not tell them apart.
    NotShown,
    /// There are too few samples to say anything.
    TooFew,
}

impl Verdict {
    /// The verdict on `a` beside `b`, at the usual level of 5 %.
    pub fn of(a: &Summary, b: &Summary) -> Verdict {
        match welch(a, b) {
            _ if a.len < SAMPLES_MIN || b.len < SAMPLES_MIN => Verdict::TooFew,
            None => Verdict::TooFew,
            Some(test) if test.p >= LEVEL => Verdict::NotShown,
            Some(test) if test.t < 0.0 => Verdict::Faster,
            Some(_) => Verdict::Slower,
        }
    }

    /// The verdict in words.
    pub fn describe(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NotShown => "no difference shown",
            Verdict::TooFew => "too few runs",
        }
    }
}

/// The level of significance that everybody uses.
const LEVEL: f64 = 0.05;

/// Two samples have a variance, but nobody should believe it.
const SAMPLES_MIN: usize = 3;

/// 2.5 % on either side leave 95 %.
const UPPER_QUANTILE: f64 = 0.975;

#[cfg(test)]
mod tests;
