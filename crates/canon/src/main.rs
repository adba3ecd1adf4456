//! The `canon` program: see `canon::cli`.

/// Asks for huge pages, which tables and indexes of small objects gain most from: docs/decisions/0002-ordered-index.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    store::keep_freed_pages();
    canon::cli::main()
}
