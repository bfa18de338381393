{
  description = "floe copies Nix closures, fast and safely, without needing Nix";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { nixpkgs, ... }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      forEach = make: builtins.listToAttrs (map (name: { inherit name; value = make name; }) systems);
    in
    {
      overlays.default = import ./packaging/nix/overlay.nix;
      packages = forEach (system: {
        default = nixpkgs.legacyPackages.${system}.callPackage ./packaging/nix/package.nix { };
      });
    };
}
