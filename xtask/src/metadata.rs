//! What `cargo metadata` says about the workspace, reduced to what the checks and the CI steps need.
//!
//! Left out on purpose: third-party packages (`--no-deps` keeps this instant and offline).

use crate::{Result, command};
use serde_json::Value;

/// One crate of the workspace.
#[derive(Debug, Default)]
pub struct Package {
    pub name: String,
    pub dependencies: Vec<Dependency>,
    pub features: Vec<String>,
    /// Names of the integration tests (`tests/*.rs`).
    pub tests: Vec<String>,
    /// Names of the examples (`examples/*.rs`).
    pub examples: Vec<String>,
}

/// One entry of a dependency section.
#[derive(Debug)]
pub struct Dependency {
    /// The package's name, also where it is renamed.
    pub name: String,
    /// In `[dev-dependencies]`: present in tests and benches only.
    pub dev: bool,
}

/// The crates of the workspace, by name.
pub fn read() -> Result<Vec<Package>> {
    let text = command::output(&mut command::cargo(&[
        "metadata",
        "--format-version=1",
        "--no-deps",
    ]))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Package>> {
    let json: Value =
        serde_json::from_str(text).map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
    let mut packages: Vec<Package> = list(&json["packages"]).map(package).collect();
    if packages.is_empty() {
        return Err("cargo metadata names no package".into());
    }
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(packages)
}

fn package(json: &Value) -> Package {
    Package {
        name: text(&json["name"]),
        dependencies: list(&json["dependencies"])
            .map(|d| Dependency {
                name: text(&d["name"]),
                dev: d["kind"] == "dev",
            })
            .collect(),
        features: json["features"]
            .as_object()
            .map(|f| f.keys().cloned().collect())
            .unwrap_or_default(),
        tests: targets(json, "test"),
        examples: targets(json, "example"),
    }
}

fn targets(package: &Value, kind: &str) -> Vec<String> {
    list(&package["targets"])
        .filter(|t| list(&t["kind"]).any(|k| k == kind))
        .map(|t| text(&t["name"]))
        .collect()
}

fn list(json: &Value) -> impl Iterator<Item = &Value> {
    json.as_array().into_iter().flatten()
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_dependencies_features_and_test_targets() {
        let packages = parse(
            r#"{"packages":[{"name":"wal",
                "dependencies":[{"name":"base","kind":null},{"name":"proptest","kind":"dev"}],
                "features":{"faults":[]},
                "targets":[{"name":"wal","kind":["lib"]},{"name":"crash","kind":["test"]},
                           {"name":"log_bench","kind":["example"]}]}]}"#,
        )
        .unwrap();
        let wal = &packages[0];
        assert_eq!(wal.name, "wal");
        let kinds: Vec<(&str, bool)> = wal
            .dependencies
            .iter()
            .map(|d| (d.name.as_str(), d.dev))
            .collect();
        assert_eq!(kinds, [("base", false), ("proptest", true)]);
        assert_eq!(wal.features, ["faults"]);
        assert_eq!(wal.tests, ["crash"]);
        assert_eq!(wal.examples, ["log_bench"]);
    }

    #[test]
    fn an_empty_answer_is_an_error() {
        assert!(parse(r#"{"packages":[]}"#).is_err());
    }
}
