//! Leases and plans: the small objects by which pushes and collections of a binary cache agree.
//! docs/formats.md describes them, and what makes a collection safe.

use std::collections::BTreeSet;
use std::fmt;

use crate::pin::is_cache_id;

/// Reason why bytes are not a valid lease or plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// The object is longer than [`NAMES_LEN_MAX`].
    #[error("it has more than {NAMES_LEN_MAX} bytes")]
    TooLong,
    /// The object is not text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The first line has no version that floe knows.
    #[error("its first line is not `{0}`")]
    Version(&'static str),
    /// A line has no field.
    #[error("line {0} is not a field")]
    Line(usize),
    /// A field stands twice.
    #[error("the field {0} stands twice")]
    Duplicate(&'static str),
    /// A field is absent.
    #[error("the field {0} is absent")]
    Absent(&'static str),
    /// The value of a field is wrong.
    #[error("the field {0} has a wrong value")]
    Value(&'static str),
}

/// A lease: the object `leases/ID` of a push that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// For how many seconds after its last write the lease counts; 0 for a push that has ended.
    pub lifetime: u32,
    /// The identifier of the last plan that the push has read.
    pub plan: Option<String>,
    /// The keys of the objects of the plan that the push needs.
    pub needs: BTreeSet<String>,
}

/// A plan: the object `gc/plan` of a collection that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The identifier: 32 hexadecimal digits. The object `gc/ID` has the [`PlannedNames`].
    pub id: String,
    /// The part of its work that the collection does.
    pub state: PlanState,
    /// For how many seconds after its last write the plan counts.
    pub lifetime: u32,
}

/// The part of its work that a collection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanState {
    /// It waits for pushes. A lease keeps objects of the plan.
    Waiting,
    /// It deletes. A push waits for the end before it uses an object of the plan.
    Deleting,
}

/// The keys of the objects that a collection deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedNames(pub BTreeSet<String>);

/// Returns the key of an object: the name of its folder and the first 12 bytes of its name in it,
/// which are 60 bits of a hash. A narinfo and its listing have the same key. Two objects with the
/// same key are both kept, or both waited for.
pub fn object_key(name: &str) -> &str {
    let folder = name.rfind('/').map_or(0, |slash| slash + 1);
    let end = (folder + KEY_LEN).min(name.len());
    let end = (folder..=end).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(name.len())]
}

impl Lease {
    /// Parses the object. Fields that floe does not know are skipped.
    ///
    /// Errors: [`LeaseError`].
    pub fn parse(text: &[u8]) -> Result<Lease, LeaseError> {
        let (mut lifetime, mut plan, mut needs) = (None, None, BTreeSet::new());
        for field in fields(text, LEASE_LINE)? {
            match field? {
                ("Lifetime", value) => set(&mut lifetime, "Lifetime", seconds(value)?)?,
                ("Plan", value) => set(&mut plan, "Plan", identifier(value, "Plan")?)?,
                ("Needs", key) if is_key(key) => _ = needs.insert(key.to_owned()),
                ("Needs", _) => return Err(LeaseError::Value("Needs")),
                _ => {}
            }
        }
        Ok(Lease {
            lifetime: lifetime.ok_or(LeaseError::Absent("Lifetime"))?,
            plan,
            needs,
        })
    }
}

impl fmt::Display for Lease {
    /// Writes the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{LEASE_LINE}")?;
        writeln!(f, "Lifetime: {}", self.lifetime)?;
        if let Some(plan) = &self.plan {
            writeln!(f, "Plan: {plan}")?;
        }
        let mut needs = self.needs.iter();
        needs.try_for_each(|key| writeln!(f, "Needs: {key}"))
    }
}

impl Plan {
    /// Parses the object. Fields that floe does not know are skipped.
    ///
    /// Errors: [`LeaseError`].
    pub fn parse(text: &[u8]) -> Result<Plan, LeaseError> {
        let (mut id, mut state, mut lifetime) = (None, None, None);
        for field in fields(text, PLAN_LINE)? {
            match field? {
                ("Id", value) => set(&mut id, "Id", identifier(value, "Id")?)?,
                ("State", "waiting") => set(&mut state, "State", PlanState::Waiting)?,
                ("State", "deleting") => set(&mut state, "State", PlanState::Deleting)?,
                ("State", _) => return Err(LeaseError::Value("State")),
                ("Lifetime", value) => set(&mut lifetime, "Lifetime", seconds(value)?)?,
                _ => {}
            }
        }
        Ok(Plan {
            id: id.ok_or(LeaseError::Absent("Id"))?,
            state: state.ok_or(LeaseError::Absent("State"))?,
            lifetime: lifetime.ok_or(LeaseError::Absent("Lifetime"))?,
        })
    }

    /// Returns the name of the object with the [`PlannedNames`].
    pub fn names_object(&self) -> String {
        format!("{GC_FOLDER}{}", self.id)
    }
}

impl fmt::Display for Plan {
    /// Writes the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            PlanState::Waiting => "waiting",
            PlanState::Deleting => "deleting",
        };
        writeln!(f, "{PLAN_LINE}")?;
        writeln!(f, "Id: {}", self.id)?;
        writeln!(f, "State: {state}")?;
        writeln!(f, "Lifetime: {}", self.lifetime)
    }
}

impl PlannedNames {
    /// Parses the object: a key in each line.
    ///
    /// Errors: [`LeaseError`].
    pub fn parse(text: &[u8]) -> Result<PlannedNames, LeaseError> {
        let mut lines = lines(text)?;
        if lines.next() != Some(NAMES_LINE) {
            return Err(LeaseError::Version(NAMES_LINE));
        }
        let keys = lines.enumerate().map(|(number, key)| {
            let key = is_key(key).then(|| key.to_owned());
            key.ok_or(LeaseError::Line(number + 2))
        });
        keys.collect::<Result<_, _>>().map(PlannedNames)
    }
}

impl fmt::Display for PlannedNames {
    /// Writes the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{NAMES_LINE}")?;
        self.0.iter().try_for_each(|key| writeln!(f, "{key}"))
    }
}

fn lines(text: &[u8]) -> Result<std::str::Lines<'_>, LeaseError> {
    if text.len() > NAMES_LEN_MAX {
        return Err(LeaseError::TooLong);
    }
    let text = std::str::from_utf8(text).map_err(|_| LeaseError::NotUtf8)?;
    Ok(text.lines())
}

/// Returns the names and the values of the lines after the first one.
fn fields<'a>(
    text: &'a [u8],
    first: &'static str,
) -> Result<impl Iterator<Item = Result<(&'a str, &'a str), LeaseError>>, LeaseError> {
    let mut lines = lines(text)?;
    if lines.next() != Some(first) {
        return Err(LeaseError::Version(first));
    }
    let lines = lines.enumerate();
    Ok(lines.map(|(number, line)| line.split_once(": ").ok_or(LeaseError::Line(number + 2))))
}

fn set<T>(field: &mut Option<T>, name: &'static str, value: T) -> Result<(), LeaseError> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(LeaseError::Duplicate(name)),
    }
}

fn seconds(text: &str) -> Result<u32, LeaseError> {
    let number = text.parse::<u32>().ok();
    let number = number.filter(|number| *number <= LIFETIME_MAX && number.to_string() == text);
    number.ok_or(LeaseError::Value("Lifetime"))
}

fn identifier(text: &str, name: &'static str) -> Result<String, LeaseError> {
    let id = is_cache_id(text).then(|| text.to_owned());
    id.ok_or(LeaseError::Value(name))
}

/// Whether a text is the key of an object.
pub fn is_key(text: &str) -> bool {
    !text.is_empty() && object_key(text) == text && !text.contains(char::is_control)
}

/// The folder of leases.
pub const LEASES_FOLDER: &str = "leases/";

/// The folder of the plan and of its names.
pub const GC_FOLDER: &str = "gc/";

/// The name of the plan.
pub const PLAN_OBJECT: &str = "gc/plan";

/// The longest lease and the longest list of names in bytes: those of millions of objects.
pub const NAMES_LEN_MAX: usize = 64 * 1024 * 1024;

/// The longest lifetime in seconds: a day.
pub const LIFETIME_MAX: u32 = 24 * 3600;

/// The length of the part of a key after the folder, in bytes.
const KEY_LEN: usize = 12;

const LEASE_LINE: &str = "FloeLease: 1";
const PLAN_LINE: &str = "FloePlan: 1";
const NAMES_LINE: &str = "FloePlannedNames: 1";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn narinfo_and_listing_have_the_same_key() {
        let part = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";
        for (name, key) in [
            (format!("{part}.narinfo"), "7bw2d1cqdpnx"),
            (format!("{part}.ls"), "7bw2d1cqdpnx"),
            (
                "nar/1w1fff338fvdw53sqgamddn1b2xgds473pv6y.nar.zst".into(),
                "nar/1w1fff338fvd",
            ),
            ("nar/short".into(), "nar/short"),
            ("log/a/bcdefghijklmnop".into(), "log/a/bcdefghijklm"),
            ("nar/éééééééé".into(), "nar/éééééé"),
            ("nar/aéééééééé".into(), "nar/aééééé"),
        ] {
            assert_eq!(object_key(&name), key);
            assert_eq!(object_key(key), key);
        }
    }

    #[test]
    fn damaged_objects_are_refused() {
        let id = "0123456789abcdef".repeat(2);
        for (text, error) in [
            ("".to_owned(), LeaseError::Version(LEASE_LINE)),
            (
                "FloeLease: 2\nLifetime: 9\n".into(),
                LeaseError::Version(LEASE_LINE),
            ),
            ("FloeLease: 1\n".into(), LeaseError::Absent("Lifetime")),
            (
                "FloeLease: 1\nLifetime: 09\n".into(),
                LeaseError::Value("Lifetime"),
            ),
            (
                "FloeLease: 1\nLifetime: 86401\n".into(),
                LeaseError::Value("Lifetime"),
            ),
            (
                "FloeLease: 1\nLifetime: 1\nLifetime: 1\n".into(),
                LeaseError::Duplicate("Lifetime"),
            ),
            (
                "FloeLease: 1\nLifetime: 1\nPlan: x\n".into(),
                LeaseError::Value("Plan"),
            ),
            (
                "FloeLease: 1\nLifetime: 1\nNeeds: nar/0123456789abc\n".into(),
                LeaseError::Value("Needs"),
            ),
            ("FloeLease: 1\nLifetime: 1\nx\n".into(), LeaseError::Line(3)),
        ] {
            assert_eq!(Lease::parse(text.as_bytes()), Err(error), "{text}");
        }
        for (text, error) in [
            (
                format!("FloePlan: 1\nId: {id}\nState: x\nLifetime: 1\n"),
                LeaseError::Value("State"),
            ),
            (
                format!("FloePlan: 1\nId: {id}\nLifetime: 1\n"),
                LeaseError::Absent("State"),
            ),
            ("FloePlan: 1\nId: ../x\n".into(), LeaseError::Value("Id")),
            (
                format!("FloePlan: 2\nId: {id}\n"),
                LeaseError::Version(PLAN_LINE),
            ),
        ] {
            assert_eq!(Plan::parse(text.as_bytes()), Err(error), "{text}");
        }
        let names = PlannedNames::parse(b"FloePlannedNames: 1\nnar/x\n\n");
        assert_eq!(names, Err(LeaseError::Line(3)));
        assert_eq!(
            Lease::parse(b"FloeLease: 1\n\xff"),
            Err(LeaseError::NotUtf8)
        );
    }

    fn key() -> impl Strategy<Value = String> {
        "(nar/|log/)?[a-z0-9.]{1,12}"
    }

    proptest! {
        #[test]
        fn lease_parses_to_itself(
            lifetime in 0..=LIFETIME_MAX,
            plan in proptest::option::of("[0-9a-f]{32}"),
            needs in proptest::collection::btree_set(key(), 0..4),
        ) {
            let lease = Lease { lifetime, plan, needs };
            prop_assert_eq!(Lease::parse(lease.to_string().as_bytes()), Ok(lease));
        }

        #[test]
        fn plan_and_its_names_parse_to_themselves(
            id in "[0-9a-f]{32}",
            is_waiting: bool,
            lifetime in 0..=LIFETIME_MAX,
            names in proptest::collection::btree_set(key(), 0..4),
        ) {
            let state = if is_waiting { PlanState::Waiting } else { PlanState::Deleting };
            let plan = Plan { id, state, lifetime };
            prop_assert_eq!(Plan::parse(plan.to_string().as_bytes()), Ok(plan));
            let names = PlannedNames(names);
            prop_assert_eq!(PlannedNames::parse(names.to_string().as_bytes()), Ok(names));
        }

        #[test]
        fn keys_are_prefixes_that_are_their_own_keys(name in "\\PC{0,40}") {
            let key = object_key(&name);
            prop_assert!(name.starts_with(key));
            prop_assert_eq!(object_key(key), key);
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: Vec<u8>) {
            let _ = (Lease::parse(&bytes), Plan::parse(&bytes), PlannedNames::parse(&bytes));
        }
    }
}
