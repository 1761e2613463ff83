//! The `tine` program: everything is in the library's `cli` module.

fn main() -> std::process::ExitCode {
    tine::cli::main()
}
