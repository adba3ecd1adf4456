//! What is read from file, environment and command line, and what is refused.

use super::*;
use base::units::{duration, size};
use wal::retention::Keep;

fn of(text: &str) -> Result<Config> {
    let file: File = toml::from_str(text).map_err(|e| Error::internal(e.to_string()))?;
    let flags = Overrides {
        data: Some("d".into()),
        ..Overrides::default()
    };
    Config::check(file, &flags)
}

/// The commented file with its defaults said.
fn uncommented() -> String {
    let said = |l: &str| {
        let key = l
            .strip_prefix("#")
            .filter(|l| l.contains(" = ") && !l.starts_with(' '));
        format!("{}\n", key.unwrap_or(l))
    };
    COMMENTED.lines().map(said).collect()
}

#[test]
fn the_commented_file_says_the_defaults() {
    let (said, default) = (of(&uncommented()).unwrap(), of("").unwrap());
    assert_eq!(said.listen, default.listen);
    assert_eq!(said.max_connections, default.max_connections);
    assert_eq!(said.checkpoint_bytes, default.checkpoint_bytes);
    assert_eq!(said.segment_bytes, default.segment_bytes);
    assert_eq!(said.shutdown_timeout, default.shutdown_timeout);
    assert_eq!(said.snapshot_max_age, default.snapshot_max_age);
    assert_eq!(said.split_adjust, default.split_adjust);
    assert_eq!(said.split_balance, default.split_balance);
    assert_eq!(said.site_certification, default.site_certification);
    assert_eq!(said.epoch_max_duration, default.epoch_max_duration);
    assert_eq!(said.log_level, default.log_level);
    assert_eq!(said.synchronous_replicas, default.synchronous_replicas);
    assert_eq!(said.wal_keep_bytes, default.wal_keep_bytes);
    assert_eq!(said.backup, default.backup);
    assert_eq!(said.replay_workers, default.replay_workers);
    assert_eq!(said.shared_memory, default.shared_memory);
    assert_eq!(said.log_ring, default.log_ring);
    assert_eq!(said.lease_reads, default.lease_reads);
    assert_eq!(said.lease_max_commit_wait, default.lease_max_commit_wait);
    assert_eq!(
        said.replay_policy.to_string(),
        default.replay_policy.to_string()
    );
    assert!(of(COMMENTED).is_ok());
}

#[test]
fn a_schedule_of_backups_needs_an_archive() {
    let archive = "archive = \"file:///b\"\n";
    let read = |text: &str| of(&format!("{archive}[backup]\n{text}"));
    assert_eq!(of(archive).unwrap().backup, None);
    let backup = read("every = \"24h\"\nkeep = \"7d\"")
        .unwrap()
        .backup
        .unwrap();
    assert_eq!(backup.every, Duration::from_secs(86_400));
    assert_eq!(backup.keep, Keep::Time(7 * 86_400_000_000));
    let backup = read("every = \"1h\"\nkeep = \"3\"")
        .unwrap()
        .backup
        .unwrap();
    assert_eq!(backup.keep, Keep::Bases(3));
    let backup = read("every = \"1h\"").unwrap().backup.unwrap();
    assert_eq!(backup.keep, Keep::All);
    for (text, why) in [
        ("every = \"soon\"", "backup.every"),
        ("every = \"10ms\"", "at least 1s"),
        ("every = \"1h\"\nkeep = \"0\"", "a number of backups"),
        ("keep = \"3\"", "it needs backup.every"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let error = of("[backup]\nevery = \"1h\"").unwrap_err().to_string();
    assert!(error.contains("it needs archive"), "{error}");
}

/// `a = 1`, or `# a = 1` in the commented file: the keys, with their sections before them.
fn keys() -> Vec<String> {
    let mut section = String::new();
    let mut keys = Vec::new();
    for line in COMMENTED.lines() {
        if line == "# [[access]]" {
            // Rules have no variables.
            section = "settings_".into();
        } else if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = format!("{name}_");
        } else if let Some((key, _)) = line.trim_start_matches(['#', ' ']).split_once(" = ")
            && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
            && section != "settings_"
        {
            keys.push(format!("{section}{key}").to_uppercase());
        }
    }
    keys.push("SETTINGS".into());
    keys
}

#[test]
fn the_table_and_the_commented_file_say_the_same() {
    let shown: Vec<String> = keys().into_iter().filter(|k| k != "SETTINGS").collect();
    let declared = table::keys();
    let names = declared
        .iter()
        .map(|(key, _)| key.replace('.', "_").to_uppercase());
    let sorted = |mut all: Vec<String>| {
        all.sort();
        all
    };
    assert_eq!(sorted(names.collect()), sorted(shown));
    let whole: toml::Table = uncommented().parse().unwrap();
    for (key, default) in declared {
        let (section, name) = key.split_once('.').unwrap_or(("", &key));
        let section = match section {
            "" => Some(&whole),
            s => whole.get(s).and_then(|s| s.as_table()),
        };
        let said = section.and_then(|s| s.get(name));
        let plain = |text: String| text.replace('"', "").to_lowercase();
        if let Some(default) = default {
            assert_eq!(
                said.map(|v| plain(v.to_string())),
                Some(plain(default)),
                "{key}"
            );
        }
    }
}

fn check(names: &[&str]) -> Result<Vec<String>> {
    check_variables(names.iter().map(|n| (*n).to_owned()))
}

#[test]
fn every_key_has_a_variable_and_slips_are_refused() {
    let keys = keys();
    assert!(keys.len() > 25, "{keys:?}");
    for key in keys {
        assert!(check(&[&format!("CANON_{key}")]).unwrap().is_empty());
    }
    let others = ["CANON_CONFIG", "CANON_PROXY_HTTP", "HOME", "CANONS"];
    assert!(check(&others).unwrap().is_empty());
    for (wrong, meant) in [
        ("CANON_MAX_MEMORI", "CANON_MAX_MEMORY"),
        ("CANON_FORWARD_WIAT", "CANON_FORWARD_WAIT"),
        ("CANON_SETTING", "CANON_SETTINGS"),
        ("CANON_DATE", "CANON_DATA"),
    ] {
        let e = check(&["HOME", wrong]).unwrap_err().to_string();
        assert!(e.contains(wrong) && e.contains(meant), "{e}");
    }
}

#[test]
fn a_start_is_not_refused_for_the_variables_of_others() {
    // Services of Kubernetes, called canon, canon-primary and canon-http-2.
    let mut links = Vec::new();
    for service in ["CANON", "CANON_PRIMARY", "CANON_HTTP_2"] {
        for end in [
            "SERVICE_HOST",
            "SERVICE_PORT",
            "SERVICE_PORT_PGSQL",
            "PORT",
            "PORT_5432_TCP",
            "PORT_5432_TCP_PROTO",
            "PORT_5432_TCP_PORT",
            "PORT_5432_TCP_ADDR",
        ] {
            links.push(format!("{service}_{end}"));
        }
    }
    let links: Vec<&str> = links.iter().map(String::as_str).collect();
    assert_eq!(check(&links).unwrap(), Vec::<String>::new());
    // Those that somebody wrote are named in the log.
    let written = [
        "CANON_IMAGE_TAG",
        "CANON_LISTEN_PORT",
        "CANON_PORTS",
        "CANON_PORT_OF_CALL",
    ];
    assert_eq!(check(&written).unwrap(), written);
}

#[test]
fn flags_win_over_the_file() {
    let file = "segment_bytes = \"8MB\"\n[forward]\nwait = \"1s\"\n[settings]\nstatement_timeout = \"5s\"\nwork_mem = \"1MB\"";
    let with = |flags: Overrides| {
        let data = Some("d".into());
        Config::check(toml::from_str(file).unwrap(), &Overrides { data, ..flags })
    };
    let c = with(Overrides {
        segment_bytes: Some("16MB".into()),
        snapshot_max_age: Some("2h".into()),
        split_balance: Some("all".into()),
        site_certification: Some("serial".into()),
        epoch_max_duration: Some("5ms".into()),
        forward_wait: Some("3s".into()),
        forward_silence: Some("4s".into()),
        settings: vec!["Statement_Timeout = 7s".into()],
        ..Overrides::default()
    })
    .unwrap();
    assert_eq!(c.segment_bytes, 16 << 20);
    assert_eq!(c.snapshot_max_age, Duration::from_secs(7200));
    assert_eq!(c.split_balance, Balance::All);
    assert_eq!(c.site_certification, Certification::Serial);
    assert_eq!(c.epoch_max_duration, Duration::from_millis(5));
    assert_eq!(c.forward.wait, Duration::from_secs(3));
    assert_eq!(c.forward.silence, Duration::from_secs(4));
    let said = |name: &str| c.settings.iter().find(|s| s.0 == name).unwrap().1.clone();
    assert_eq!(said("statement_timeout"), "7s");
    assert_eq!(said("work_mem"), "1MB");
    for wrong in ["statement_timeout", "nonesuch=1", "statement_timeout=never"] {
        let settings = vec![wrong.to_owned()];
        let wrong_flags = Overrides {
            settings,
            ..Overrides::default()
        };
        assert!(with(wrong_flags).is_err(), "{wrong}");
    }
}

#[test]
fn mistakes_are_found() {
    for bad in [
        "max_conections = 5",
        "max_connections = 0",
        "listen = \"nowhere\"",
        "max_memory = \"8 apples\"",
        "shutdown_timeout = \"soon\"",
        "log_level = \"=%\"",
        "replica_of = \"nowhere\"",
        "replica_of = \"host=a port=b\"",
        "synchronous_replicas = 99",
        "[lease]\nmax_commit_wait = \"soon\"",
        "[failover]\nlease = \"100ms\"",
        "[failover]\nlease = \"2s\"",
        "[replay]\npolicy = \"fast\"",
        "[replay]\nworkers = 1000",
        "[settings]\nnonesuch = 1",
        "[settings]\nstatement_timeout = \"never\"",
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
    let c = of("[settings]\nstatement_timeout = \"5s\"\ndefault_transaction_isolation = \"read committed\"").unwrap();
    assert_eq!(c.settings.len(), 2);
}

#[test]
fn sizes_and_times() {
    assert_eq!(size("8GB"), Some(8 << 30));
    assert_eq!(size("1.5 kB"), Some(1536));
    assert_eq!(size("7"), Some(7));
    assert_eq!(size("GB"), None);
    assert_eq!(duration("90s"), Some(Duration::from_secs(90)));
    assert_eq!(duration("2min"), Some(Duration::from_secs(120)));
    assert_eq!(duration("5"), None);
}
