//! The `tine` program. The library's `cli` module has all the code.

fn main() -> std::process::ExitCode {
    tine::cli::main()
}
