//! Memory that rows have left stays with the process, and goes back to the system when it is told to.
#![cfg(feature = "mimalloc")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.expect("a number of KiB") << 10
}

#[test]
fn freed_pages_go_back_when_asked() {
    const MIB: u64 = 1 << 20;
    store::keep_freed_pages();
    let before = resident();
    let rows: Vec<Vec<u8>> = (0..1_000_000).map(|_| vec![7; 200]).collect();
    let full = resident();
    assert!(full > before + 150 * MIB, "{before} {full}");
    drop(rows);
    store::give_pages_back();
    let after = resident();
    assert!(after < before + 50 * MIB, "{before} {full} {after}");
}

#[test]
fn rows_that_shrink_to_a_half_are_noticed_once() {
    let memory = store::Memory::default();
    memory.add(1 << 30);
    assert!(!memory.has_shrunk());
    memory.add(-(1 << 28));
    assert!(!memory.has_shrunk(), "three quarters are left");
    memory.add(-(1 << 29));
    assert!(memory.has_shrunk());
    assert!(!memory.has_shrunk());
}
