//! The `canon` program: see `canon::cli`.

fn main() -> std::process::ExitCode {
    canon::cli::main()
}
