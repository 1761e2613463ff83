//! Any bytes in records whose checksums are right.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tine::layer::fuzzing::read_records(bytes));
