//! The claims in the manifests of the published packages.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    process::Command,
};

use serde_json::Value;

const PUBLISHED: [&str; 5] = [
    "redlock-rt",
    "redlock-macros",
    "redlock-cli",
    "redlock-embedded",
    "redlock-tower",
];
const README: &str = include_str!("../../README.md");

/// A version of Rust: 1.88 is (1, 88).
type Rust = (u32, u32);

fn rust(version: &str) -> Rust {
    let mut parts = version.split('.').map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        // Not offline: a fresh machine has not downloaded the packages of other platforms.
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap()
}

/// The ids of the packages that a user compiles, with any features and on any target.
fn compiled(metadata: &Value) -> HashSet<&str> {
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let nodes: HashMap<_, _> = nodes.iter().map(|node| (text(node, "id"), node)).collect();
    let packages = metadata["packages"].as_array().unwrap();
    let mut open: Vec<_> = packages
        .iter()
        .filter(|package| PUBLISHED.contains(&text(package, "name")))
        .map(|package| text(package, "id"))
        .collect();
    let mut seen = HashSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds
                .iter()
                .any(|kind| kind["kind"].as_str() != Some("dev"))
            {
                open.push(text(dependency, "pkg"));
            }
        }
    }
    seen
}

#[test]
fn a_rust_is_asked_for_that_the_dependencies_do_not_ask_for() {
    let metadata = metadata();
    let compiled = compiled(&metadata);
    let packages = metadata["packages"].as_array().unwrap();
    let (mut declared, mut needed) = (HashSet::new(), ((0, 0), ""));
    for package in packages {
        if !compiled.contains(text(package, "id")) {
            continue;
        }
        let version = package["rust_version"].as_str().map_or((0, 0), rust);
        if PUBLISHED.contains(&text(package, "name")) {
            declared.insert(version);
        } else {
            needed = needed.max((version, text(package, "name")));
        }
    }
    println!("{} packages, {needed:?} asks for the most", compiled.len());
    assert_eq!(declared, HashSet::from([needed.0]), "{} needs it", needed.1);
    let (major, minor) = needed.0;
    assert!(README.contains(&format!("Rust {major}.{minor} or later")));
}

#[test]
fn each_dependency_has_its_reason_on_the_page() {
    let metadata = metadata();
    let published = metadata["packages"].as_array().unwrap().iter();
    let published = published.filter(|package| PUBLISHED.contains(&text(package, "name")));
    let needed = published.flat_map(|package| package["dependencies"].as_array().unwrap());
    let needed: BTreeSet<&str> = needed
        .filter(|needed| needed["kind"].as_str() != Some("dev"))
        .map(|needed| text(needed, "name"))
        .filter(|name| !PUBLISHED.contains(name))
        .collect();
    let page = include_str!("../../docs/dependencies.md");
    let (_, rows) = page.split_once("| dependency |").unwrap();
    let rows = rows.lines().filter_map(|row| row.split('|').nth(1));
    let listed: BTreeSet<&str> = rows
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(listed, needed);
}

/// Clippy of the workspace is that of `--all-features`.
#[test]
fn the_tests_take_all_features() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let package = |name| {
        packages
            .iter()
            .find(|package| text(package, "name") == name)
    };
    let there = package("redlock-rt").unwrap()["features"]
        .as_object()
        .unwrap();
    let mut taken = package("tests").unwrap()["dependencies"]
        .as_array()
        .unwrap()
        .iter();
    let taken = taken
        .find(|needed| text(needed, "name") == "redlock-rt")
        .unwrap();
    let taken: BTreeSet<&str> = taken["features"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .chain(["default"])
        .collect();
    assert_eq!(taken, there.keys().map(String::as_str).collect());
}
