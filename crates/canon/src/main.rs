//! The `canon` program: see `canon::cli`.

/// Asks for huge pages, which tables and indexes of small objects gain most from: docs/decisions/0002-ordered-index.md.
/// Statements' limits are kept by what it counts: `base::memory`.
#[global_allocator]
static ALLOCATOR: store::Metered<store::Mimalloc> = store::Metered(store::Mimalloc);

fn main() -> std::process::ExitCode {
    store::keep_freed_pages();
    canon::cli::main()
}
