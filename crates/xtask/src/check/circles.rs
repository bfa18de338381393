//! Forbids circles between the modules of a crate.
//!
//! A module depends on another if its code, or that of a module inside it, names the other one by
//! `crate::` or `super::`. A name that a module imports from its child counts as a name of that
//! child; names behind a `*` are not followed. A module and its ancestors may name each other.
//! Tests and the root module are left out: they may name everything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Fault;
use super::code::{Piece, tokens, without_tests};

/// The sources of one crate, by their path below `src/`.
type Sources<'a> = BTreeMap<&'a str, &'a str>;

/// For each module, the modules that it names.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// `files` holds the path and the text of every source of the repository.
pub(super) fn faults(files: &[(String, String)]) -> Vec<Fault> {
    let mut crates: BTreeMap<&str, Sources<'_>> = BTreeMap::new();
    for (file, text) in files {
        let Some((name, inner)) = file.split_once("/src/") else {
            continue;
        };
        if name == "bench" || name.starts_with("crates/") {
            crates.entry(name).or_default().insert(inner, text);
        }
    }
    let mut faults = Vec::new();
    for (name, sources) in &crates {
        for (module, graph) in graphs(sources) {
            if let Some(circle) = circle(&graph) {
                let place = [&[name, "src"], &module[..]].concat().join("/");
                let why = format!("modules in a circle: {}", circle.join(" → "));
                faults.push(Fault::new(&place, 0, "circles", &why));
            }
        }
    }
    faults
}

/// The dependencies between the children of each module, by the path of the module.
fn graphs<'a>(sources: &Sources<'a>) -> BTreeMap<Vec<&'a str>, Graph<'a>> {
    let modules: BTreeMap<Vec<&str>, Vec<Piece<'_>>> = sources
        .iter()
        .filter_map(|(file, text)| Some((module_path(file)?, without_tests(&tokens(text)))))
        .collect();
    let all = all_modules(&modules);
    let reexports = reexports(sources, &modules);
    let mut graphs: BTreeMap<Vec<&str>, Graph<'_>> = BTreeMap::new();
    for (path, code) in &modules {
        for named in named_by(code, path) {
            let target = resolve(named, &all, &reexports);
            let common = path.iter().zip(&target).take_while(|(a, b)| a == b);
            let depth = common.count();
            // A module and its ancestors may name each other.
            if let (Some(from), Some(to)) = (path.get(depth), target.get(depth)) {
                let graph = graphs.entry(path[..depth].to_vec()).or_default();
                graph.entry(from).or_default().insert(to);
            }
        }
    }
    graphs
}

/// The paths of all modules, also of those that contain only other modules.
fn all_modules<'a>(modules: &BTreeMap<Vec<&'a str>, Vec<Piece<'a>>>) -> BTreeSet<Vec<&'a str>> {
    let ancestors = |path: &Vec<&'a str>| {
        let path = path.clone();
        (1..=path.len()).map(move |len| path[..len].to_vec())
    };
    modules.keys().flat_map(ancestors).collect()
}

/// The module that a file holds, from the root; nothing for the root itself and for tests.
fn module_path(file: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = file.strip_suffix(".rs")?.split('/').collect();
    let is_root = matches!(parts[..], ["lib" | "main"]) || parts[0] == "bin";
    let is_test = parts.contains(&"tests");
    (!is_root && !is_test).then_some(parts)
}

/// For each module and the root, the names that it imports from its children, with the whole path.
type Reexports<'a> = BTreeMap<Vec<&'a str>, Vec<&'a str>>;

fn reexports<'a>(
    sources: &Sources<'a>,
    modules: &BTreeMap<Vec<&'a str>, Vec<Piece<'a>>>,
) -> Reexports<'a> {
    let roots = ["lib.rs", "main.rs"]
        .iter()
        .filter_map(|file| sources.get(file));
    let roots = roots.map(|text| (Vec::new(), tokens(text)));
    let modules = modules
        .iter()
        .map(|(path, code)| (path.clone(), code.clone()));
    let mut found = Reexports::new();
    for (path, code) in roots.chain(modules) {
        let uses = (0..code.len()).filter(|at| code[*at].text == "use");
        for named in uses.flat_map(|at| paths(&code, at + 1)) {
            let (name, named) = (named.alias, named.path);
            // `self::a::A` and `crate::p::a::A` in the module `p` are also `a::A`.
            let named = match named.first() {
                Some(&"self") => &named[1..],
                Some(&"crate") => named[1..].strip_prefix(&path[..]).unwrap_or(&[]),
                Some(&"super") => &[],
                _ => &named[..],
            };
            if named.len() > 1 && name != "self" {
                let whole = [&path[..], named].concat();
                found.insert([&path[..], &[name]].concat(), whole);
            }
        }
    }
    found
}

/// Returns the path of the module that holds what a path names.
fn resolve<'a>(
    named: Vec<&'a str>,
    all: &BTreeSet<Vec<&'a str>>,
    reexports: &Reexports<'a>,
) -> Vec<&'a str> {
    let mut path = named;
    // A child may import the name from its own child.
    for _ in 0..REEXPORTS_MAX {
        let len = (0..=path.len())
            .rev()
            .find(|len| *len == 0 || all.contains(&path[..*len]))
            .unwrap_or(0);
        let Some(whole) = path.get(..len + 1).and_then(|name| reexports.get(name)) else {
            path.truncate(len);
            break;
        };
        path = [&whole[..], &path[len + 1..]].concat();
    }
    path
}

/// The paths from the root of the crate that code uses by `crate::` or `super::`.
fn named_by<'a>(code: &[Piece<'a>], module: &[&'a str]) -> Vec<Vec<&'a str>> {
    let text = |at: usize| code.get(at).map_or("", |piece| piece.text);
    let mut found = Vec::new();
    for at in 0..code.len() {
        // Every chain of `super` is looked at once, from its first link.
        let is_inner = at >= 2 && text(at - 1) == "::" && text(at - 2) != "self";
        let is_visibility = text(at.wrapping_sub(1)) == "(" && text(at + 1) == ")";
        if is_inner || is_visibility {
            continue;
        }
        let mut next = at;
        let mut depth = module.len();
        while text(next) == "super" && text(next + 1) == "::" {
            next += 2;
            depth = depth.saturating_sub(1);
        }
        if text(at) == "crate" && text(at + 1) == "::" {
            (next, depth) = (at + 2, 0);
        } else if next == at {
            continue;
        }
        let below = paths(code, next).into_iter();
        found.extend(below.map(|below| [&module[..depth], &below.path].concat()));
    }
    found
}

/// A path as code names it.
#[derive(Clone, Debug, Default)]
struct NamedPath<'a> {
    path: Vec<&'a str>,
    /// The name after `as`, or else the last one of the path.
    alias: &'a str,
}

/// The paths that begin at a place: one, or those of a group `{a, b::{c, d as e}}`.
fn paths<'a>(code: &[Piece<'a>], at: usize) -> Vec<NamedPath<'a>> {
    let text = |at: usize| code.get(at).map_or("", |piece| piece.text);
    let mut open: Vec<Vec<&str>> = Vec::new();
    let (mut current, mut found) = (NamedPath::default(), Vec::new());
    for next in at..code.len() {
        match text(next) {
            "::" | "as" => {}
            "{" if next == at || text(next - 1) == "::" => open.push(current.path.clone()),
            "," | "}" if !open.is_empty() => {
                let prefix = open.last().cloned().unwrap_or_default();
                if current.path.len() > prefix.len() {
                    found.push(std::mem::take(&mut current));
                }
                current.path = prefix;
                if text(next) == "}" {
                    open.pop();
                    current.path = open.last().cloned().unwrap_or_default();
                    if open.is_empty() {
                        return found;
                    }
                }
            }
            alias if is_name(alias) && next > at && text(next - 1) == "as" => {
                current.alias = alias;
            }
            // Two names without `::` between them end a path.
            name if is_name(name) && !(next > at && is_name(text(next - 1))) => {
                current.path.push(name);
                current.alias = name;
            }
            _ if open.is_empty() => break,
            _ => {}
        }
    }
    if !current.path.is_empty() {
        found.push(current);
    }
    found
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// A shortest circle, with its first module repeated at its end.
fn circle<'a>(graph: &Graph<'a>) -> Option<Vec<&'a str>> {
    let circles = graph.keys().filter_map(|start| way_back(graph, start));
    circles.min_by_key(Vec::len)
}

/// A shortest way from a module to itself.
fn way_back<'a>(graph: &Graph<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for &next in graph.get(module).into_iter().flatten() {
            if next == start {
                let mut way = vec![start, module];
                while let Some(&previous) = before.get(way[way.len() - 1]) {
                    way.push(previous);
                }
                way.reverse();
                if way[0] != start {
                    way.insert(0, start);
                }
                return Some(way);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = before.entry(next) {
                entry.insert(module);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Longer than any chain of imports from children.
const REEXPORTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(file, text)| (format!("crates/x/src/{file}"), text.to_string()))
            .collect();
        faults(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn circle_of_two_modules_is_a_fault() {
        let found = messages(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::{io, a::{A, b}};"),
        ]);
        assert_eq!(
            found,
            ["crates/x/src: circles: modules in a circle: a → b → a"]
        );
    }

    #[test]
    fn circle_through_super_and_reexport_is_a_fault() {
        let found = messages(&[
            ("lib.rs", "pub use b::{B, C};"),
            ("a/inner.rs", "use crate::C;"),
            ("b/deep.rs", "fn f() { super::super::a::g() }"),
        ]);
        assert_eq!(
            found,
            ["crates/x/src: circles: modules in a circle: a → b → a"]
        );
    }

    #[test]
    fn circle_of_three_modules_is_a_fault() {
        let found = messages(&[
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", "use crate::a;"),
        ]);
        assert_eq!(
            found,
            ["crates/x/src: circles: modules in a circle: a → b → c → a"]
        );
    }

    #[test]
    fn circle_of_children_is_a_fault() {
        let found = messages(&[
            ("a.rs", "mod b; mod c; mod d; pub use d::D;"),
            ("a/b.rs", "use super::{c::C, Own};"),
            ("a/c/inner.rs", "use crate::a::D;"),
            ("a/d.rs", "fn f(x: super::b::B) {}"),
            ("e.rs", "use crate::a::D;"),
        ]);
        assert_eq!(
            found,
            ["crates/x/src/a: circles: modules in a circle: b → c → d → b"]
        );
    }

    #[test]
    fn import_from_child_counts_in_every_spelling() {
        for import in ["self::b::B", "crate::a::b::B", "b::{self, B}", "b::X as B"] {
            for name in [
                "super::B",
                "self::super::B",
                "super::{B as C, Own}",
                "crate::a::B::new",
            ] {
                let found = messages(&[
                    (
                        "a.rs",
                        &format!("mod b; mod c; pub use {import}; struct Own;"),
                    ),
                    ("a/b.rs", "use super::c::C;"),
                    ("a/c.rs", &format!("use {name};")),
                ]);
                assert_eq!(found.len(), 1, "{import}, {name}");
            }
        }
    }

    #[test]
    fn alias_hides_the_name_that_the_child_gives() {
        let found = messages(&[
            (
                "a.rs",
                "mod b; mod c; use b::{self, Node as Other}; struct Node;",
            ),
            ("a/b.rs", "use super::c::C;"),
            ("a/c.rs", "use super::{self, Node};"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn tests_comments_and_parents_are_no_dependencies() {
        let found = messages(&[
            ("lib.rs", "mod a; use a::A;"),
            ("a.rs", "mod inner; use crate::b;"),
            ("a/inner.rs", "use super::A; use crate::a::B;"),
            (
                "b.rs",
                "// crate::a\n#[cfg(test)] mod tests { use crate::a; }\npub(crate) fn f() {}",
            ),
            ("b/tests.rs", "use crate::a;"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
