//! The lines of progress.

use std::time::Duration;

use floe_transfer::Size;

use crate::display::Elapsed;
use crate::messages::counted;

/// The amounts of a copy. Pairs are the part that is done, and the total.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amounts {
    pub(crate) paths: (usize, usize),
    /// The total is 0 if no source knows it.
    pub(crate) fetched: (u64, u64),
    pub(crate) unpacked: (u64, u64),
    /// The bytes per second from the sources.
    pub(crate) rate: f64,
    /// The remaining time, if it is known.
    pub(crate) rest: Option<Duration>,
}

pub(crate) fn resolving(known: usize, pending: usize, fetched: u64) -> String {
    let paths = counted(known, "missing path");
    let fetched = match fetched {
        0 => String::new(),
        bytes => format!(", {} fetched", Size(bytes)),
    };
    format!("resolving: {paths}, {pending} queries in flight{fetched}")
}

/// Returns the total as a line of at most `columns` characters: as many parts as fit, and a bar if
/// there is room.
pub(crate) fn total(amounts: &Amounts, columns: usize) -> String {
    let parts = amounts.parts();
    let mut line = String::new();
    for part in &parts {
        let gap = if line.is_empty() { "" } else { GAP };
        if line.len() + gap.len() + part.len() > columns {
            break;
        }
        line += gap;
        line += part;
    }
    match columns
        .saturating_sub(line.len() + GAP.len())
        .min(BAR_LEN_MAX)
    {
        0..BAR_LEN_MIN => truncated(&line, columns),
        len => format!("{line}{GAP}{}", bar(amounts.unpacked, len)),
    }
}

/// Returns the total as a line of a log.
pub(crate) fn total_text(amounts: &Amounts) -> String {
    amounts.parts().join(", ")
}

impl Amounts {
    /// The parts of the total, the most important first.
    fn parts(&self) -> Vec<String> {
        let (staged, paths) = self.paths;
        let mut parts = vec![
            format!("{} %", percent(self.unpacked)),
            format!("{staged}/{} received", counted(paths, "path")),
        ];
        if staged == paths {
            parts.push("registering".into());
        } else if let Some(rest) = self.rest {
            let whole = Duration::from_secs(rest.as_secs_f64().ceil() as u64);
            parts.push(format!("{} left", Elapsed(whole)));
        }
        let (fetched, total) = self.fetched;
        if fetched > 0 {
            parts.push(format!("{}/s", Size(self.rate as u64)));
            parts.push(match total {
                0 => format!("{} fetched", Size(fetched)),
                total => format!("{} fetched", of((fetched.min(total), total))),
            });
        }
        parts.push(format!("{} unpacked", of(self.unpacked)));
        parts
    }
}

/// Returns the line of a path that is being received, of at most `columns` characters.
pub(crate) fn transfer(name: &str, amounts: (u64, u64), columns: usize) -> String {
    let amounts = format!("{:>3} %  {}", percent(amounts), of(amounts));
    let room = columns.saturating_sub(amounts.len() + INDENT.len() + GAP.len());
    match room {
        0..NAME_LEN_MIN => truncated(&format!("{INDENT}{amounts}"), columns),
        room => format!("{INDENT}{amounts}{GAP}{}", truncated(name, room)),
    }
}

/// Cuts the end of a text of ASCII characters that is too long.
pub(crate) fn truncated(text: &str, columns: usize) -> String {
    match text.get(..columns.saturating_sub(1)) {
        Some(begin) if text.len() > columns => format!("{begin}…"),
        _ => text.to_owned(),
    }
}

/// `102/195 MiB`: both in the unit of the total.
fn of((done, total): (u64, u64)) -> String {
    let text = Size(total).to_string();
    let (amount, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let digits = usize::from(amount.contains('.'));
    let unit_len = total as f64 / amount.parse::<f64>().unwrap_or(1.0).max(1.0);
    let done = match total {
        0 => 0.0,
        _ => done as f64 / unit_len,
    };
    format!("{done:.digits$}/{amount} {unit}")
}

fn percent((done, total): (u64, u64)) -> u64 {
    // 100 % means that nothing is left.
    match total {
        0 => 100,
        total => (u128::from(done.min(total)) * 100 / u128::from(total)) as u64,
    }
}

fn bar((done, total): (u64, u64), len: usize) -> String {
    let inner = len - 2;
    let filled = match total {
        0 => inner,
        total => (u128::from(done.min(total)) * inner as u128 / u128::from(total)) as usize,
    };
    format!("[{}{}]", "#".repeat(filled), "-".repeat(inner - filled))
}

const GAP: &str = "  ";
const INDENT: &str = "  ";
const BAR_LEN_MIN: usize = 12;
const BAR_LEN_MAX: usize = 60;
const NAME_LEN_MIN: usize = 8;
