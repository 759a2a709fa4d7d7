# The manual page and the shells' completion scripts, made by the built command itself: the page from what `kjit help`
# and each `--help` print, so that there is one text to keep right. A cross-compiled command cannot be run, and gets
# neither page nor script.
if(CMAKE_CROSSCOMPILING)
  return()
endif()
set(pages ${PROJECT_BINARY_DIR}/pages)
add_custom_command(
  OUTPUT ${pages}/kjit.1 ${pages}/kjit.bash ${pages}/_kjit ${pages}/kjit.fish
  COMMAND ${CMAKE_COMMAND} -DKJIT=$<TARGET_FILE:kjit_command> -DVERSION=${PROJECT_VERSION} -DFOLDER=${pages}
          -P ${PROJECT_SOURCE_DIR}/cmake/write_command_pages.cmake
  DEPENDS kjit_command ${PROJECT_SOURCE_DIR}/cmake/write_command_pages.cmake
  COMMENT "Writing kjit(1) and the completion scripts" VERBATIM)
add_custom_target(kjit_command_pages ALL DEPENDS ${pages}/kjit.1)

install(FILES ${pages}/kjit.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${pages}/kjit.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME kjit)
install(FILES ${pages}/_kjit DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${pages}/kjit.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
