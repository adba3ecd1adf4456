//! The fuzzer's program. With the feature `libfuzzer` (`cargo xtask fuzz TARGET`) libFuzzer owns `main`, and the variable
//! `CANON_FUZZ_TARGET` names the target; without, `cargo run -p fuzz -- TARGET FILE…` runs inputs that it found
//! again, and `--seeds DIRECTORY` writes what it starts from.

#![cfg_attr(feature = "libfuzzer", no_main)]

#[cfg(feature = "libfuzzer")]
static TARGET: std::sync::LazyLock<&fuzz::Target> = std::sync::LazyLock::new(|| {
    let name = std::env::var("CANON_FUZZ_TARGET").expect("CANON_FUZZ_TARGET is set");
    fuzz::target(&name).expect("CANON_FUZZ_TARGET names a target")
});

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (TARGET.run)(data);
});

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let target = args.first().and_then(|name| fuzz::target(name));
    let done = match (target, args.get(1).map(String::as_str), args.get(2)) {
        (Some(target), Some("--seeds"), Some(directory)) => write_seeds(target, directory),
        (Some(target), ..) => args[1..].iter().try_for_each(|file| {
            let accepted = (target.run)(&std::fs::read(file)?);
            println!("{file}: {}", if accepted { "accepted" } else { "refused" });
            Ok(())
        }),
        (None, ..) => {
            let names: Vec<&str> = fuzz::TARGETS.iter().map(|t| t.name).collect();
            let usage = format!(
                "fuzz TARGET (FILE… | --seeds DIRECTORY), TARGET one of {}",
                names.join(" ")
            );
            Err(std::io::Error::other(usage))
        }
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// One file per seed, for libFuzzer to start from.
#[cfg(not(feature = "libfuzzer"))]
fn write_seeds(target: &fuzz::Target, directory: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for (i, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(format!("{directory}/seed-{i}"), seed)?;
    }
    Ok(())
}
