//! Derives `tine_failure::ToFailure`, which documents the attributes.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::{Attribute, Data, DeriveInput, Expr, Fields, Ident, LitStr, Variant, parenthesized};

/// Derives `ToFailure` for an enum of errors.
#[proc_macro_derive(ToFailure, attributes(failure, hint))]
pub fn derive_to_failure(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    implementation(&input)
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

fn implementation(input: &DeriveInput) -> syn::Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(syn::Error::new_spanned(input, "ToFailure needs an enum"));
    };
    let common = Told::read(&input.attrs)?;
    let arms = data.variants.iter().map(|variant| arm(variant, &common));
    let arms = arms.collect::<syn::Result<Vec<TokenStream>>>()?;
    let (name, generics) = (&input.ident, &input.generics);
    let (of_impl, of_type, bounds) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_variables)]
        impl #of_impl ::tine_failure::ToFailure for #name #of_type #bounds {
            fn to_failure(&self) -> ::tine_failure::Failure {
                match self { #(#arms)* }
            }
        }
    })
}

/// Returns the arm of one variant.
///
/// It binds the fields by name, or as `_0` and `_1`.
fn arm(variant: &Variant, common: &Told) -> syn::Result<TokenStream> {
    let name = &variant.ident;
    let pattern = match &variant.fields {
        Fields::Named(fields) => {
            let names = fields.named.iter().map(|field| &field.ident);
            quote!(Self::#name { #(#names),* })
        }
        Fields::Unnamed(fields) => {
            let names = (0..fields.unnamed.len()).map(|number| format_ident!("_{number}"));
            quote!(Self::#name(#(#names),*))
        }
        Fields::Unit => quote!(Self::#name),
    };
    let told = Told::read(&variant.attrs)?;
    let failure = told.failure(common, variant)?;
    Ok(quote!(#pattern => #failure,))
}

/// Contents of the attributes `failure` and `hint`.
#[derive(Default)]
struct Told {
    code: Option<Ident>,
    message: Option<TokenStream>,
    cause: Option<Expr>,
    causes: Option<Expr>,
    paths: Option<Expr>,
    hint: Option<TokenStream>,
    /// Expression in place of all others.
    with: Option<Expr>,
    is_transparent: bool,
}

impl Told {
    fn read(attributes: &[Attribute]) -> syn::Result<Told> {
        let mut told = Told::default();
        for attribute in attributes {
            if attribute.path().is_ident("failure") {
                attribute.parse_nested_meta(|meta| told.take(meta))?;
            } else if attribute.path().is_ident("hint") {
                told.hint = Some(attribute.parse_args_with(text)?);
            }
        }
        Ok(told)
    }

    fn take(&mut self, meta: ParseNestedMeta<'_>) -> syn::Result<()> {
        let name = meta.path.require_ident()?;
        match name.to_string().as_str() {
            "message" => {
                let content;
                parenthesized!(content in meta.input);
                self.message = Some(text(&content)?);
            }
            "cause" => self.cause = Some(meta.value()?.parse()?),
            "causes" => self.causes = Some(meta.value()?.parse()?),
            "paths" => self.paths = Some(meta.value()?.parse()?),
            "with" => self.with = Some(meta.value()?.parse()?),
            "transparent" => self.is_transparent = true,
            _ => self.code = Some(name.clone()),
        }
        Ok(())
    }

    /// Returns the expression of the variant's failure.
    fn failure(&self, common: &Told, variant: &Variant) -> syn::Result<TokenStream> {
        if let Some(with) = &self.with {
            return Ok(quote!(#with));
        }
        if self.is_transparent {
            return Ok(quote!(::tine_failure::ToFailure::to_failure(_0)));
        }
        let Some(code) = self.code.as_ref().or(common.code.as_ref()) else {
            let error = "name a code: #[failure(CODE)]";
            return Err(syn::Error::new_spanned(variant, error));
        };
        let code = quote!(::tine_failure::ErrorCode::#code);
        let message = match self.message.as_ref().or(common.message.as_ref()) {
            Some(message) => message.clone(),
            None => quote!(::std::string::ToString::to_string(self)),
        };
        let failure = match &self.cause {
            Some(cause) => quote!(::tine_failure::Failure::caused(#code, #message, #cause)),
            None => quote!(::tine_failure::Failure::new(#code, #message)),
        };
        let causes = self.causes.iter();
        let paths = self.paths.iter();
        let hint = self.hint.as_ref().or(common.hint.as_ref()).into_iter();
        Ok(quote!(#failure #(.causes(#causes))* #(.paths(#paths))* #(.hint(#hint))*))
    }
}

/// Reads a text: a format string with its arguments, or an expression.
fn text(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    if input.peek(LitStr) {
        let format: TokenStream = input.parse()?;
        return Ok(quote!(::std::format!(#format)));
    }
    let text: Expr = input.parse()?;
    Ok(quote!(#text))
}
