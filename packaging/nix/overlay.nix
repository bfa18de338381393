# Adds floe to nixpkgs.
final: _previous: {
  floe = final.callPackage ./package.nix { };
}
